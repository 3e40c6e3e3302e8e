"""The question whether the choice of experts matters on a user's table."""

import math
import types

import gatebench
import keras
import numpy as np
import pandas as pd
import pytest

from common.rivals import Rival
from research.benches import mine
from research.benches.data import Table

independent = pytest.mark.backend_independent
OWN_GATES = """
from dselectk_keras.gates import DSelectKGate, TopKGate

GATES = {
    "wide": lambda num_nonzeros, steps: TopKGate(num_nonzeros + 1),
    "mine": lambda num_nonzeros, steps: TopKGate(num_nonzeros),
    "selectors": lambda num_nonzeros, steps: DSelectKGate(num_nonzeros),
}
"""


@pytest.fixture
def own_gates(tmp_path):
    """Write a file with gates; return its path."""

    def write(text=OWN_GATES):
        path = tmp_path / "own.py"
        path.write_text(text)
        return str(path)

    return write


@independent
def test_gates_of_a_file_are_arms_and_are_sparse_if_they_say_so(own_gates):
    arms = mine.read_gates(own_gates())
    assert [arm.more["dense"] for arm in arms.values()] == [True, False, False]
    assert [len(arm.more["events"]) for arm in arms.values()] == [0, 0, 1]
    settings = types.SimpleNamespace(num_steps=5)
    assert arms["mine"].gate(3, 8, settings).num_nonzeros == 3


@independent
@pytest.mark.parametrize(
    ("text", "received"),
    [
        ("", "GATES is None"),
        ("GATES = {'a': lambda k, _: k}", "'a': 2"),
        (OWN_GATES.replace("wide", "softmax"), "'softmax': <TopKGate"),
    ],
)
def test_what_is_no_gate_is_refused(own_gates, text, received):
    with pytest.raises(ValueError, match=f"new names(.|\n)*Received: {received}"):
        mine.read_gates(own_gates(text))


@independent
def test_tasks_that_share_most_experts_are_a_group():
    one = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    other = [[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]]
    # Tasks d and e share 3 of 5 experts; c shares 1 of 3 at most, of each draw.
    groups = mine.groups_of(np.array([one, other], bool), list("abcde"))
    assert groups == [["a", "b"], ["d", "e"]]
    chain = [[[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]]
    assert mine.groups_of(chain, list("abc")) == []
    chain = [[[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]]
    assert mine.groups_of(chain, list("abc")) == [["a", "b", "c"]]


@independent
def test_targets_that_are_texts_become_questions():
    nan = np.nan
    frame = pd.DataFrame(
        {
            "n": [0.5, nan, 2.0, 1.0],
            "two": ["no", "yes", None, "no"],
            "more": ["a", "b", "c", None],
            "one or two": [2.0, 1.0, None, 2.0],
        }
    )
    wanted = {
        "n": [0.5, nan, 2.0, 1.0],
        "two": [0.0, 1.0, nan, 0.0],
        "more = a": [1.0, 0.0, 0.0, nan],
        "more = b": [0.0, 1.0, 0.0, nan],
        "more = c": [0.0, 0.0, 1.0, nan],
        "one or two": [1.0, 0.0, nan, 1.0],
    }
    found = mine.as_labels(frame, list(frame))
    pd.testing.assert_frame_equal(found, pd.DataFrame(wanted, dtype="float32"))


NO_LABELS = "must have labels .* for training, for validation .* none of 'c'"


@independent
@pytest.mark.parametrize(
    ("rows", "targets", "text"),
    [
        (["1,v0,"] * 20, ["b"], "Received: 1, such as 'v0'"),
        ([f"1,v{i % 13}," for i in range(20)], ["b"], "12 texts. .*'b', with 13"),
        (["1,2,"] * 30 + ["2,3,1", "1,2,0"], ["b", "c"], NO_LABELS),
        (["1,2,"] * 20, ["d"], "must name columns of "),
        (["1,2,"] * 20, None, "Received: none."),
    ],
)
def test_targets_that_cannot_be_trained_are_refused(tmp_path, rows, targets, text):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b,c", *rows]))
    with pytest.raises(ValueError, match=text):
        mine.answer(path, targets, tmp_path, 1)


@independent
def test_losses_without_a_network_are_the_mean_over_tasks(monkeypatch):
    """A log loss, a squared error, and numbers with two values in the training."""
    frames = []

    def rivals(train, validation, names, settings, seed, again):
        assert not again
        frames.extend([train, validation])

        def model(loss, predicted, classes=None):
            return Rival({}, loss, classes, lambda x: np.array([predicted] * len(x)))

        halves = model(0.1, [0.25, 0.75], np.array([0.0, 1.0]))
        return {
            "0": {"trees": halves, "linear": model(0.2, [0.5, 0.5], halves.classes)},
            "1": {"trees": model(0.3, 9.0), "linear": model(0.2, 1.0)},
            "2": {"trees": halves},
        }

    monkeypatch.setattr(mine, "rivals", rivals)
    frame = pd.DataFrame({"text": list("abc")})
    y = np.array([[1.0, 3.0, 0.0], [0.0, np.nan, 1.75]], "float32")
    splits = [(np.array(rows, "float32")[:, None], y) for rows in ((2, 0), (1, 1))]
    table = Table([*splits, splits[0]], np.array([True, False, False]))
    log = -(math.log(0.75) + math.log(0.25)) / 2
    found = mine.error_without_network(table, 0, frame)
    assert found == pytest.approx((log + 4.0 + (0.75**2 + 1.0) / 2) / 3)
    # Inputs are the numbers of rows; texts stay texts.
    assert [list(each["text"]) for each in frames] == [["c", "a"], ["b", "b"]]


@independent
@pytest.mark.parametrize(
    ("best", "verdict"),
    [
        ((0.5, 0.5, 0.6), "matters here"),
        ((0.9, 0.9, 0.9), "hardly matters here"),
        ((0.7, 0.95, 1.0), "may matter"),
        ((0.5, 0.5), r"may matter (more `--draws` than 2 may say it) here"),
    ],
)
def test_the_page_says_whether_the_choice_matters(row, best, verdict):
    rows = []
    for draw, error in enumerate(best):
        for arm in (*mine.CHOSEN, *mine.DENSE, "own"):
            cost = 50.0 if arm == mine.FIT else 200.0
            test = 1.0 if arm != "own" else np.inf
            rows.append(row("mine", arm, draw, test, multiplications=cost))
        rows.append(row("mine", mine.BEST, draw, error, choices=[0.5, 2.0]))
        # Luck with initial weights gives 10 %.
        rows.append(row("mine", mine.CONTROL, draw, 0.9, choices=[0.5, 2.0]))

    def said(rows, without=2.0):
        errors = {("mine", "mine", draw): without for draw in range(len(best))}
        chosen = [np.eye(2, dtype=bool)]
        found = mine.sentences(rows, ["a", "b"], chosen, errors, ["own"])
        return " ".join("\n\n".join(found).split())

    text = said(rows)
    for part in (
        f"**The choice of experts {verdict}",
        "| own | no result | 100% |",
        "| no network | 2.000 [2.00, 2.00] | |",
        "has 0.90 times theirs",
        "| chosen by fit | 1.000 [1.00, 1.00] | 25% |",
        "75% of the multiplications for a task, with 1.00 times the error",
        "most of their experts: none.",
    ):
        assert part in text
    # Models without a network win if no gate has a lower error.
    assert said(rows, 1.01).startswith("**The choice")
    worse = [
        each | {"test": 2.0} if each["arm"] == mine.RECIPE else each for each in rows
    ]
    assert said(worse, 1.5).startswith("**The choice")
    better = said(rows, 0.75)
    is_sure = len(best) == 3
    assert is_sure == better.startswith("**Models without a network are better here.**")
    text = "has 0.75 times the test error of experts chosen by fit, and 0.75"
    assert is_sure == (text in better)
    # Draws that share rows say less, and a gate of one's own counts.
    assert said([each | {"overlap": 1.0} for each in rows], 0.75).startswith("**The")
    own = [each | {"test": 0.7} if each["arm"] == "own" else each for each in rows]
    assert said(own, 0.75).startswith("**The choice")
    if len(best) == 3:
        fitted = [
            each | {"test": 0.5} if each["arm"] == mine.FIT else each for each in rows
        ]
        assert "The choice of experts matters here" in said(fitted)


@pytest.mark.traced
@pytest.mark.usefixtures("two_choices")
def test_a_table_with_texts_and_gaps_is_asked(tmp_path, monkeypatch, capsys, own_gates):
    monkeypatch.setattr(mine, "GRID", {"rates": (0.03,), "decays": (0.3,)})
    path, rng = tmp_path / "t.csv", np.random.default_rng(0)
    x, colour = rng.normal(size=50), rng.choice(["red", "blue", ""], 50)
    # Targets of two kinds, a gap and a column without values.
    lines = [f"{a:.3f};{c};;{a:.3f};{c}" for a, c in zip(x, colour, strict=True)]
    lines[0] = f";{colour[0]};;1.0;{colour[0]}"
    path.write_text("x;colour;nothing;y;kind\n" + "\n".join(lines) + "\n")
    arguments = ["--mine", str(path), "--targets", "y", "kind", "--draws", "1"]
    arguments += ["--out", str(tmp_path), "--epochs", "2", "--gates", own_gates()]
    gatebench.main([*arguments, "--backend", keras.backend.backend()])
    text = (tmp_path / "mine.md").read_text()
    # Of one draw, nothing follows.
    assert "experts may matter (more `--draws` than 1 may say it) here" in text
    assert "nan" not in text
    assert "\n| mine | " in text
    assert "\n| Top-k, noisy | " in text
    assert " ".join(text.split()).endswith(
        "Draws: 1, each of 30 rows for training, 10 for validation and 10 for test, of "
        "the 50 rows of the table. Two draws share 20% of their rows for test: "
        "intervals are wider by that."
    )
    assert (tmp_path / "mine.png").exists()
    assert f"Written to {tmp_path / 'mine.md'}." in capsys.readouterr().out
