"""The study of tables: errors, ratios and splits, by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from common.rivals import EXTRA, LINEAR, TREES
from research.engine import Results, Run
from research.studies import tables as module
from research.studies.real_tables import TABLES, RealTable
from research.studies.tables import (
    BEST,
    ESTIMATOR,
    NETWORKS,
    PER_TARGET,
    TUNED,
    Tables,
    interval,
    mean_log,
    measure,
)


def test_ratios_are_means_over_targets_in_intervals_of_students_t():
    """Half and twice the error are none; of three numbers, 4.303 standard errors."""
    assert mean_log({"a": 1.0, "b": 4.0}, {"a": 2.0, "b": 2.0}) == pytest.approx(0.0)
    assert mean_log({"a": math.e}, {"a": 1.0}) == pytest.approx(1.0)
    assert interval([0.0, 0.1, 0.2]) == "+0.100 ± 0.248"
    assert interval([-0.5, 0.5]) == "+0.000"


def test_missing_labels_are_left_out_and_two_numbers_stay_numbers():
    """A number that has two values in the rows to train on is the mean of both."""
    test = pd.DataFrame(
        {
            "price": [1.0, np.nan, 3.0],
            "count": [0.0, 2.0, np.nan],
            "kind": ["a", None, "b"],
        }
    )
    found = {
        "price": (np.array([2.0, 100.0, 3.0]), None),
        "count": (np.array([[0.5, 0.5], [0.0, 1.0], [9.0, 9.0]]), (0.0, 1.0)),
        "kind": (np.array([[0.5, 0.5], [0.1, 0.9], [0.75, 0.25]]), ("a", "b")),
    }
    errors = measure(lambda frame: found, test, list(found))
    assert errors == {
        "price": pytest.approx(math.sqrt(0.5)),
        "count": pytest.approx(math.sqrt((0.25 + 1.0) / 2)),
        "kind": pytest.approx((math.log(2) + math.log(4)) / 2),
    }


def test_rows_to_test_on_are_others():
    """Three of four rows at most, others with another seed."""
    frame = pd.DataFrame({"x": np.arange(100.0)})
    study = Tables(num_train=50, num_test=20)
    train, test = study.split(frame, 0)
    assert (len(train), len(test)) == (50, 20)
    assert not {*train["x"]} & {*test["x"]}
    assert list(study.split(frame, 1)[0]["x"]) != list(train["x"])
    assert len(Tables(num_train=90).split(frame, 0)[0]) == 75


def made(folder):
    """A table whose number and class are told by two columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(400), "kind": rng.choice(["a", "b"], 400)})
    frame["number"] = 10.0 * (frame["x"] > 0.5)
    frame["number"] += rng.normal(size=400)
    frame["name"] = frame["kind"].map({"a": "one", "b": "two"})
    return frame


@pytest.fixture
def study(monkeypatch):
    """The study on two tables that are made here."""
    monkeypatch.setattr(
        Tables,
        "known",
        {name: RealTable(made, ("number", "name")) for name in ("first", "second")},
    )
    module.load.cache_clear()
    yield Tables(seeds=2, num_train=120, num_test=100, settings=2, num_tables=2)
    module.load.cache_clear()


def test_rivals_are_fitted_and_the_best_is_named(study):
    """The errors of three kinds, and of the best by validation."""
    pytest.importorskip("sklearn")
    from research.engine import Job

    (found,) = study.run(f"first: {TUNED}", [Job(0, {})])
    errors = found["errors"]
    assert errors.keys() == {TREES, EXTRA, LINEAR, BEST}
    for target in ("number", "name"):
        others = {errors[kind][target] for kind in (TREES, EXTRA, LINEAR)}
        assert errors[BEST][target] in others
    assert errors[BEST]["number"] < 2.0


@pytest.mark.parametrize(
    "method",
    [ESTIMATOR, "MMoE, softmax per example", "MMoE, chosen by fit", PER_TARGET],
)
def test_networks_predict_numbers_and_classes(study, monkeypatch, method):
    """One epoch of each kind of network: all errors are finite."""
    pytest.importorskip("sklearn")
    from dselectk_keras.tables import model
    from research.engine import Job

    monkeypatch.setattr(model.Settings, "__init__", few_epochs(model.Settings.__init__))
    (found,) = study.run(f"first: {method}", [Job(0, {})])
    errors = found["errors"][BEST]
    assert errors.keys() == {"number", "name"}
    # In the units of the labels, whose deviation is 5; and a log loss.
    assert 0.5 < errors["number"] < 8.0
    assert 0.0 < errors["name"] < 2.0


def few_epochs(init):
    """The constructor of settings with two epochs and narrow layers."""

    def construct(self, **options):
        init(self, **{"epochs": 2, "units": (8, 8), **options})

    return construct


def test_tables_and_the_picture_show_each_model(study):
    """Won where the mean of the log ratios is below zero."""
    results = Results(study, "cpu")
    errors = {"first": (0.5, 0.5), "second": (2.0, math.e)}
    for table, (one, two) in errors.items():
        for seed, error in enumerate((one, two)):
            for method, value in ((ESTIMATOR, error), (NETWORKS, error), (TUNED, 1.0)):
                kinds = (BEST,) if method != TUNED else (BEST, TREES, EXTRA, LINEAR)
                own = {kind: {"number": value, "name": value} for kind in kinds}
                numbers = {"errors": own, "processor_seconds": 3.0}
                results.add(Run(f"{table}: {method}", seed, {}, numbers, 3.0), {})
    _, row, networks, *rows = study.table_models(results)
    low, high = math.log(0.5), (math.log(2.0) + 1) / 2
    assert row[0] == ESTIMATOR
    assert row[1].startswith(f"{(low + high) / 2:+.3f}")
    assert row[2:4] == [f"{high:+.3f}", "1 of 2"]
    assert row[4].startswith("+0.000")
    assert (row[5:], networks[4:]) == (["3", "2"], ["", "3", "2"])
    # To the networks, the ratio is the inverse one.
    assert rows[0][4].startswith(f"{-(low + high) / 2:+.3f}")
    heads, first, second = study.each_table(results)
    assert heads[:2] == ["table", f"{ESTIMATOR}:"]
    assert first[1].startswith(f"{low:+.3f}")
    assert second[1].startswith(f"{high:+.3f}")
    assert study.verdict(results).startswith("**No difference is established**")
    assert "and it wins 1." in study.verdict(results)
    _, mean, rest, unseen, won, most = study.table_goals(results)
    assert mean[1:] == [f"{(low + high) / 2:+.3f}", "no"]
    assert rest[1:] == [f"{high:+.3f}", "no"]
    assert unseen[1:] == mean[1:]  # Neither table is Adult.
    assert won[1:] == [1, "no"]
    assert most[1:] == [f"second {high:+.3f}", "no"]
    assert study.table_gates(results) is None
    for table, error in (("first", 2.0), ("second", 8.0)):
        for method, value in ((module.SOFTMAX, 1.0), ("shared bottom", error)):
            numbers = {"errors": {BEST: {"number": value}}, "processor_seconds": 3.0}
            results.add(Run(f"{table}: {method}", 0, {}, numbers, 3.0), {})
    _, (gate, gap) = study.table_gates(results)
    assert gate == "shared bottom"
    assert gap.startswith(f"{math.log(4.0):+.3f}")
    figure = study.draw_ratios(results)
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == [ESTIMATOR, "boosted trees, tuned"]


def test_ten_tables_have_several_targets_each():
    """All but those of the folder name the package that has them."""
    assert len(TABLES) == 10
    assert min(len(table.targets) for table in TABLES.values()) == 2
    assert sum(table.package is not None for table in TABLES.values()) == 5
