"""The measurement of what keeps experts alive."""

import json
from pathlib import Path

import collapse
import keras
import numpy as np
import pytest


def test_every_model_has_the_same_learning_rates():
    for name, strengths in collapse.ARMS.items():
        settings = collapse.settings_of(name)
        assert len(set(settings)) == len(settings)
        for strength in strengths or [None]:
            assert {rate for each, rate in settings if each == strength} == set(
                collapse.RATES
            )


def test_no_committed_setting_is_at_an_edge_of_its_grid():
    path = Path(__file__).parents[2] / "docs" / "results" / "collapse.json"
    runs = json.loads(path.read_text())["runs"]
    assert {run["model"] for run in runs} == set(collapse.ARMS)
    for run in runs:
        name, settings = run["model"], (run["strength"], run["rate"])
        assert settings in collapse.settings_of(name)
        assert not collapse.at_edge(name, *settings), name
    assert collapse.at_edge("Top-2", None, collapse.RATES[0])
    assert collapse.at_edge("Top-2", None, collapse.RATES[-1])
    assert collapse.at_edge("Top-2, importance", 100.0, 0.01)
    assert not collapse.at_edge("Top-2, importance", 0.0, 0.01)


def test_each_kind_and_task_has_a_function_of_its_own():
    x, y = collapse.make_problem(0)["train"]
    assert x.shape == (3_000, 16)
    assert y.shape == (3_000, 4)
    assert abs(x.mean() - collapse.OFFSET) < 1
    np.testing.assert_allclose(y.std(), 1.0, rtol=1e-4)
    assert np.abs(np.corrcoef(y.T) - np.eye(4)).max() < 0.3


def test_the_table_has_means_and_deviations():
    runs = [
        {"model": "a", "test_error": 1.0, "dead_experts": 1.0, "largest_share": 0.5},
        {"model": "a", "test_error": 3.0, "dead_experts": 2.0, "largest_share": 0.7},
        {"model": "b", "test_error": 0.5},
    ]
    *_, first, second = collapse.table(runs).splitlines()
    assert first == "| a | 1.5 of 8 | 0.60 | 2.000 ± 1.414 |"
    assert second == "| b |  |  | 0.500 ± nan |"


def test_results_of_other_settings_are_not_continued(tmp_path, monkeypatch, capsys):
    def measure(name, problem, seeds, settings, epochs):
        # A training that diverged.
        kept = {"model": name, "problem": problem, "test_error": float("nan")}
        return [{**kept, "seed": seed, "strength": None} for seed in seeds]

    monkeypatch.setattr(collapse, "tune", lambda *_: (None, 0.01))
    monkeypatch.setattr(collapse, "draw", lambda *_: None)
    monkeypatch.setattr(collapse, "measure", measure)

    def start(arm, *options):
        collapse.main(["--out", str(tmp_path), "--arms", arm, *options])

    start("softmax", "--epochs", "20")
    path = tmp_path / "collapse.json"
    before = path.read_text()
    json.loads(before, parse_constant=pytest.fail)
    for options, text in (
        (["--epochs", "2"], "has results with epochs 20. Received: 2. Pass another"),
        (["--epochs", "0"], "must be a positive integer, received 0"),
        ([], "has results with backend "),
    ):
        if not options:
            monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
        with pytest.raises(SystemExit):
            start("shared bottom", *options)
        assert text in capsys.readouterr().err
    assert path.read_text() == before
    monkeypatch.undo()
    monkeypatch.setattr(collapse, "tune", lambda *_: (None, 0.01))
    monkeypatch.setattr(collapse, "draw", lambda *_: None)
    monkeypatch.setattr(collapse, "measure", measure)
    start("shared bottom")
    assert "| softmax |  |  | nan ± nan |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="There is no model 'softmx'"):
        start("softmx")


@pytest.mark.parametrize(
    ("name", "setting", "has_gate"),
    [
        ("Top-2, standardized inputs, importance", (0.1, 0.01), True),
        ("shared bottom", (None, 0.01), False),
    ],
)
def test_a_model_is_measured(monkeypatch, name, setting, has_gate):
    sizes = {"train": 64, "validation": 32, "test": 32}
    monkeypatch.setattr(collapse, "SIZES", sizes)
    (run,) = collapse.measure(name, 0, [3], [setting], epochs=1)
    assert (run["seed"], run["strength"], run["rate"]) == (3, *setting)
    assert run["test_error"] > 0
    assert ("dead_experts" in run) == has_gate
    if has_gate:
        assert 0 <= run["dead_experts"] < 8
        assert 1 / 8 < run["largest_share"] <= 1
