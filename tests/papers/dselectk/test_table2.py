"""Table 2: what is measured, what is compared, and what is claimed."""

import math

import numpy as np
import pytest

from dselectk_keras.experiments import Results, Run
from papers.dselectk.table2 import Table2, arm_name, task_numbers

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


def test_arms_have_a_k_only_where_there_is_one():
    experiment = Table2(datasets=("multi_mnist",), methods=FEW)
    assert list(experiment.arms) == [
        "Multi-MNIST: DSelect-k, static, k = 2",
        "Multi-MNIST: DSelect-k, static, k = 4",
        "Multi-MNIST: Top-k, static, k = 2",
        "Multi-MNIST: Top-k, static, k = 4",
        "Multi-MNIST: softmax, per-example",
    ]


def test_only_what_has_a_choice_is_tuned():
    experiment = Table2(methods=FEW, learning_rates=(0.1, 0.2))
    arm = arm_name("multi_mnist", "DSelect-k, static", 2)
    assert experiment.space(arm) == {"learning_rate": (0.1, 0.2)}
    assert Table2(methods=FEW).space(arm) == {}


def made_up(errors):
    """Results on Multi-MNIST, with errors for each gate."""
    experiment = Table2(datasets=("multi_mnist",), methods=FEW, num_nonzeros=(2,))
    results = Results(experiment, "made-up")
    for method, values in errors.items():
        k = None if method.startswith("softmax") else 2
        for seed, error in enumerate(values):
            numbers = {"error": error, "admissible": error < 0.3, "experts": 2.0}
            numbers["accuracy_top_left"] = 1 - error
            arm = arm_name("multi_mnist", method, k)
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


@pytest.mark.parametrize(
    ("errors", "holds"),
    [
        (([0.10, 0.11], [0.20, 0.21], [0.30, 0.31]), [True, True, True]),
        (([0.25, 0.26], [0.20, 0.21], [0.30, 0.31]), [False, True, True]),
        (([0.40, 0.41], [0.20, 0.21], [0.30, 0.31]), [False, False, False]),
        (([0.10], [0.20], [0.30]), [None, None, True]),
    ],
)
def test_claims(errors, holds):
    results = made_up(dict(zip(FEW, errors, strict=True)))
    report = results.experiment.report(results)
    assert [claim.holds for claim in report.claims] == holds


def test_table_has_a_row_for_each_gate():
    results = made_up({method: [0.1, 0.2] for method in FEW})
    (table,) = results.experiment.report(results).tables
    assert [row[0] for row in table.rows] == [
        "DSelect-k, static, k = 2",
        "Top-k, static, k = 2",
        "softmax, per-example",
    ]
    assert table.rows[0][1] == "85.00 ± 5.00"
