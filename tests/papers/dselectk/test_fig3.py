"""Measures by hand, and claims about made-up results."""

import numpy as np
import pytest

from dselectk_keras.datasets import recommender_sim
from dselectk_keras.experiments import Results, Run
from papers.dselectk.fig3 import Fig3, by_first_use, rmse

DATA = recommender_sim(num_train=1, num_validation=1, num_test=1)
BINARY = [kind == "binary" for kind in DATA.task_kinds]


def test_the_error_by_hand():
    assert rmse(np.array([1.0, 2.0]), np.array([4.0, 6.0])) == pytest.approx(12.5**0.5)


def test_experts_come_in_the_order_of_their_first_use():
    weights = np.array([[0, 0.3, 0, 0.7], [0.5, 0.5, 0, 0]])
    expected = [[0.7, 0.3, 0, 0], [0, 0.5, 0.5, 0]]
    assert by_first_use(weights).tolist() == expected


def made_up(better, related):
    """Two seeds of each gate; DSelect-k better by a share on so many tasks."""
    experiment = Fig3(seeds=2)
    results = Results(experiment, "test")
    for arm in experiment.arms:
        for seed in range(2):
            numbers = {
                "weights": np.eye(8),
                "experts": 1.0,
                "admissible": True,
                "related": related,
                "unrelated": 0.3,
            }
            for i, (name, binary) in enumerate(
                zip(DATA.task_names, BINARY, strict=True)
            ):
                change = 0.0 if arm == "Top-k" else (0.25 if i < better else -0.1)
                numbers[name] = 0.6 * (1 + change if binary else 1 - change)
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return experiment.report(results)


def test_better_on_most_tasks():
    report = made_up(better=5, related=0.5)
    assert [claim.holds for claim in report.claims] == [True, True, True]
    assert "5 of the 8 tasks, by +11.88% on average" in report.claims[0].ours
    # An error that is lower counts as better, as a higher AUC does.
    assert [row[-1] for row in report.tables[0].rows[:6]] == [
        *["+25.00% ± 0.00%"] * 5,
        "-10.00% ± 0.00%",
    ]
    assert report.tables[1].rows[1][-1] == "2 of 2"


def test_worse_on_most_tasks():
    report = made_up(better=0, related=0.2)
    assert [claim.holds for claim in report.claims] == [False, False, False]
