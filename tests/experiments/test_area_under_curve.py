"""Areas by hand, and by all pairs."""

import math

import numpy as np
import pytest

from experiments import area_under_curve


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
