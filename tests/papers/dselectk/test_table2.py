"""Table 2: what is measured, what is compared, and what is claimed."""

import math

import numpy as np
import pytest

from experiments import Results, Run
from papers.dselectk._gates import METHODS
from papers.dselectk.table2 import STATIC, Table2, _cost, arm_name, task_numbers

FEW = ("DSelect-k, static", "Top-k, static", "softmax, per-example")


def test_numbers_of_the_tasks():
    predictions = {
        "top_left": np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]),
        "bottom_right": np.array([[0.25, 0.5, 0.25], [0.5, 0.3, 0.2]]),
    }
    numbers = task_numbers(predictions, np.array([[0, 1], [2, 1]]))
    assert numbers["accuracy_top_left"] == 1.0
    assert numbers["accuracy_bottom_right"] == 0.5
    assert numbers["error"] == 0.25
    first = -(math.log(0.5) + math.log(0.7)) / 2
    second = -(math.log(0.5) + math.log(0.3)) / 2
    assert numbers["loss"] == pytest.approx(first + second)


def test_only_what_has_a_choice_is_tuned():
    presets = Table2.presets()
    arm = arm_name("multi_mnist", "DSelect-k, static")
    assert presets["cpu"].space(arm) == {}
    assert presets["paper"].space(arm) == {
        "learning_rate": (0.01, 0.001, 0.0001, 0.00001),
        "epochs": (25, 50, 75, 100),
        "num_nonzeros": (2, 4),
        "entropy": (0.001, 0.01, 0.1, 1.0),
        "gamma": (0.1, 1.0, 10.0),
        "dense_layers": (1, 3, 5),
    }
    softmax = arm_name("multi_mnist", "softmax, per-example")
    assert "num_nonzeros" not in presets["paper"].space(softmax)


def test_cost_from_records_of_epochs():
    # Three records of two tasks, three experts and two selectors.
    weights = [[[1, 1, 1], [1, 1, 1]], [[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [1, 0, 0]]]
    binary = [[[0, 0], [1, 0]], [[1, 1], [1, 1]], [[1, 1], [1, 1]]]
    record = {"weights": np.array(weights), "binary": np.array(binary)}
    assert _cost(record) == {"evaluated": 2.5, "decided": 0.5}
    assert _cost({"weights": record["weights"]})["decided"] is None


def made_up(errors, **numbers):
    """Results on both data sets, with errors for each method."""
    results = Results(Table2(methods=tuple(errors)), "made-up")
    for method, values in errors.items():
        for dataset in results.experiment.datasets:
            for seed, error in enumerate(values):
                mine = method.startswith("DSelect-k")
                found = {"error": error, "experts": 1.5 if mine else 2.0}
                found |= dict.fromkeys(
                    ("accuracy_top_left", "accuracy_bottom_right"), 1 - error
                )
                found |= {"decided": 0.4, "evaluated": 2.5 if mine else 3.0}
                arm = arm_name(dataset, method)
                results.add(Run(arm, seed, {}, found | numbers, 1.0), {})
    return results


def found(results):
    return [claim.holds for claim in results.experiment.report(results).claims]


def test_claims_hold():
    errors = {name: [0.30, 0.31] for name in METHODS} | {STATIC: [0.10, 0.11]}
    # Multi-Fashion takes more FLOPS in the paper, and here less.
    assert found(made_up(errors)) == [*[True] * 6, False]


def test_claims_fail():
    errors = {name: [0.10, 0.11] for name in METHODS} | {STATIC: [0.30, 0.31]}
    assert found(made_up(errors, decided=0.9)) == [False] * 7


def test_what_may_be_chance_is_not_close():
    errors = {name: [0.30, 0.31] for name in METHODS}
    assert found(made_up(errors))[2] is True
    # The errors differ by 0.005 ± 0.005.
    assert found(made_up(errors | {STATIC: [0.30, 0.32]}))[2] is None
    assert found(made_up(errors | {STATIC: [0.32, 0.33]}))[2] is False


def test_what_was_not_run_fails():
    results = made_up({name: [0.1, 0.2] for name in FEW})
    claims = results.experiment.report(results).claims
    assert "Gumbel-softmax, static: not run" in claims[0].ours
    assert [claims[i].holds for i in (0, 3, 4)] == [False] * 3
    assert set(found(Results(Table2(), "made-up"))) == {False}


def test_table_has_a_row_for_each_gate():
    results = made_up({method: [0.1, 0.2] for method in FEW})
    table, _ = results.experiment.report(results).tables
    assert [row[0] for row in table.rows] == list(FEW)
    assert table.rows[0][1] == "85.00 ± 5.00"
