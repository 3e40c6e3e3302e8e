"""Measures by hand, and claims about made-up results."""

import numpy as np
import pytest

from dselectk_keras.datasets import recommender_sim
from experiments import Results, Run
from papers.dselectk.fig3 import (
    PAPER,
    Fig3,
    by_first_use,
    gain,
    rmse,
    same_expert,
    share_one,
)

DATA = recommender_sim(num_train=1, num_validation=1, num_test=1)
BINARY = [kind == "binary" for kind in DATA.task_kinds]


def test_the_error_by_hand():
    assert rmse(np.array([1.0, 2.0]), np.array([4.0, 6.0])) == pytest.approx(12.5**0.5)


def test_experts_come_in_the_order_of_their_first_use():
    weights = np.array([[0, 0.3, 0, 0.7], [0.5, 0.5, 0, 0]])
    expected = [[0.7, 0.3, 0, 0], [0, 0.5, 0.5, 0]]
    assert by_first_use(weights).tolist() == expected


def test_gains_by_hand():
    assert gain("AUC", 0.6, 0.5) == pytest.approx(0.2)
    assert gain("RMSE", 0.4, 0.5) == pytest.approx(0.2)
    # The abstract's 22 % is the mean over the tasks of Table 3.
    mean = np.mean([gain(*numbers) for numbers in PAPER.values()])
    assert 0.22 < mean < 0.23


def test_tasks_that_share_an_expert():
    used = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], bool)
    assert not share_one(used)
    assert share_one(used[:2])
    assert same_expert(used)
    assert not same_expert(np.eye(3, dtype=bool))


def made_up(better, together, satisfied=0.05, failed=()):
    """Two seeds of each gate; DSelect-k better by a share on so many tasks."""
    experiment = Fig3(seeds=2)
    results = Results(experiment, "test")
    for arm in experiment.arms:
        for seed in range(2):
            numbers = {
                "weights": np.ones((8, 8)) if together else np.eye(8),
                "experts": 1.0,
                "admissible": True,
                "related": 0.5,
                "unrelated": 0.3,
            }
            for i, (name, binary) in enumerate(
                zip(DATA.task_names, BINARY, strict=True)
            ):
                change = 0.0 if arm == "Top-k" else (0.25 if i < better else -0.1)
                change += satisfied * DATA.groups[i] * (arm != "Top-k")
                numbers[name] = 0.6 * (1 + change if binary else 1 - change)
                if (arm, seed) in failed:
                    numbers[name] = float("nan")
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return experiment.report(results)


def test_better_on_all_tasks():
    report = made_up(better=8, together=True)
    assert [claim.holds for claim in report.claims] == [True] * 5
    assert "+30.00% on satisfaction tasks" in report.claims[1].ours
    assert report.claims[1].paper == "33.7%; 15.8%: means in the table"
    assert report.tables[1].rows[3] == [
        *("E. Task 4", "RMSE", "1.1213 ± 0.0842", "0.8781 ± 0.0014", "+21.7%")
    ]
    # An error that is lower counts as better, as a higher AUC does.
    first = report.tables[0].rows
    assert [row[-1] for row in first if row[0] == "engagement"] == [
        "+25.00% ± 0.00%"
    ] * 5
    assert report.tables[2].rows[1][-1] == "2 of 2"


@pytest.mark.parametrize("arm", ["Top-k", "DSelect-k"])
def test_a_failed_run_is_no_run_without_a_difference(arm):
    report = made_up(better=0, together=True, failed=[(arm, 0)])
    assert [claim.holds for claim in report.claims[:3]] == [None] * 3
    assert report.tables[0].rows[0][-1] == "+nan%"


def test_worse_on_some_tasks():
    report = made_up(better=0, together=False, satisfied=-0.05)
    assert [claim.holds for claim in report.claims] == [False] * 5
