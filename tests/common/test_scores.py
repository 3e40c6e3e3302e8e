"""Scores by hand."""

import math

import numpy as np
import pytest

from common.scores import (
    accuracy,
    f1,
    matthews,
    pearson,
    rmse,
    spearman,
)


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
    assert spearman(labels, labels**3) == pytest.approx(1)
    assert spearman(labels, -labels) == pytest.approx(-1)
    assert pearson(labels, labels**3) == pytest.approx(0.97872, abs=1e-5)
    assert pearson(labels, np.ones(4)) == pearson(np.ones(4), labels) == 0
