"""Areas, differences and tasks by hand."""

import math

import numpy as np
import pytest

from dselectk_keras.experiments import EXPERIMENTS, Results, Run
from dselectk_keras.experiments.mmoe._shared import (
    area_under_curve,
    difference,
    judged,
    only_tasks,
    signed,
)
from dselectk_keras.experiments.stand_in import stand_in


def test_area_counts_pairs_in_order():
    # Of the pairs (0.8, 0.3), (0.8, 0.5), (0.5, 0.3), (0.5, 0.5) the last is a tie.
    area = area_under_curve([1, 0, 0, 1], [0.8, 0.3, 0.5, 0.5])
    assert area == pytest.approx(3.5 / 4)
    assert area_under_curve([0, 1], [2.0, 1.0]) == 0
    assert area_under_curve([0, 0, 1, 1], np.zeros(4)) == 0.5


def test_area_agrees_with_all_pairs():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(2, size=200), rng.integers(20, size=200) / 10
    above = scores[labels == 1][:, None] - scores[labels == 0][None]
    expected = np.mean((above > 0) + 0.5 * (above == 0))
    assert area_under_curve(labels, scores) == pytest.approx(expected)


def test_area_that_cannot_be_had():
    assert math.isnan(area_under_curve([1, 1], [0.1, 0.2]))
    assert math.isnan(area_under_curve([0, 1], [0.1, np.nan]))


def test_difference_of_means_and_its_error():
    results = Results(EXPERIMENTS["mmoe-fig6"].presets()["smoke"], "smoke")
    for arm, values in {"a": (1.0, 3.0), "b": (0.0, 1.0)}.items():
        for seed, value in enumerate(values):
            results.add(Run(arm, seed, {}, {"x": value}, 1.0), {})
    # Standard errors of 1 and 1/2.
    assert difference(results, "x", "a", "b") == pytest.approx((1.5, math.sqrt(1.25)))


def test_what_may_be_chance_is_not_judged():
    assert judged(0.2, 0.1) is True
    assert judged(-0.2, 0.1) is False
    assert judged(0.19, 0.1) is None
    assert judged(5.0, math.nan) is None


def test_differences_are_written_with_their_sign():
    assert signed(0.004, 0.00123) == "+0.0040 ± 0.0012"
    assert signed(-0.25, math.nan, 2) == "-0.25"


def test_only_tasks_cuts_and_renames():
    data = stand_in((3,), {"a": "binary", "b": "regression", "c": 5}, size=7)
    cut = only_tasks(data, {"first": "c", "second": "a", "third": "c"})
    assert cut.task_names == ("first", "second", "third")
    assert cut.task_kinds == ("multiclass", "binary", "multiclass")
    assert cut.num_classes == (5, None, 5)
    labels = np.asarray(data.test.y)
    np.testing.assert_array_equal(cut.test.y, labels[:, [2, 0, 2]])
    assert cut.train.x is data.train.x
