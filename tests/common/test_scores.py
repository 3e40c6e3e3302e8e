"""Scores by hand, and areas by all pairs."""

import math

import numpy as np
import pytest

from common.scores import (
    accuracy,
    area_under_curve,
    f1,
    matthews,
    pearson,
    ranks,
    rmse,
    spearman,
)


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


def test_scores_of_classes_by_hand():
    labels, predicted = np.array([1, 1, 1, 0, 0]), np.array([1, 1, 0, 1, 2])
    assert accuracy(labels, predicted) == pytest.approx(2 / 5)
    # Precision and recall are 2/3 both.
    assert f1(labels, predicted) == pytest.approx(2 / 3)
    # The class 2 counts as 0: 2 and 1 are right, of 3 and 2.
    expected = (2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2)
    assert matthews(labels, predicted) == pytest.approx(expected)
    assert f1(np.zeros(2), np.zeros(2)) == 0


def test_the_root_of_the_mean_squared_error_by_hand():
    assert rmse(np.array([1.0, 2.0]), np.array([4.0, 6.0])) == pytest.approx(12.5**0.5)


def test_correlations_by_hand():
    labels = np.array([0, 1, 1, 5])
    # Equal values share rank 2.5.
    np.testing.assert_array_equal(ranks(labels), [1, 2.5, 2.5, 4])
    assert spearman(labels, labels**3) == pytest.approx(1)
    assert spearman(labels, -labels) == pytest.approx(-1)
    assert pearson(labels, labels**3) == pytest.approx(0.97872, abs=1e-5)
    assert pearson(labels, np.ones(4)) == pearson(np.ones(4), labels) == 0
