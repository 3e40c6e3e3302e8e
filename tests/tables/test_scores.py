"""Scores of a target by hand, and areas by all pairs."""

import math

import numpy as np
import pytest
from checks import assert_close

from dselectk_keras.tables import Target
from dselectk_keras.tables.model import baseline
from dselectk_keras.tables.scores import (
    area_under_curve,
    fit_scale,
    ranks,
    scaled,
    scores_of,
)


def test_scores_by_hand():
    known = np.array([0.0, 1.0, 1.0, np.nan])
    chances = np.array([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25], [1, 0]])
    found = scores_of(Target("a", "binary", ("n", "y")), known, chances)
    loss = -(np.log(0.5) + np.log(0.75) + np.log(0.25)) / 3
    entropy = -np.log(1 / 3) / 3 - np.log(2 / 3) * 2 / 3
    assert found["labels"] == 3
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["auc"] == 0.5
    assert found["log_loss"] == pytest.approx(loss)
    assert found["explained"] == pytest.approx(1 - loss / entropy)
    found = scores_of(Target("a", "number"), known, np.array([1.0, 1, 0, 9]))
    assert found["rmse"] == pytest.approx((2 / 3) ** 0.5)
    assert found["r2"] == pytest.approx(1 - (2 / 3) / (2 / 9))
    found = scores_of(Target("a", "number"), known * np.nan, known)
    assert found["labels"] == 0
    assert np.isnan(found["explained"])
    assert baseline(Target("a", "number"), known) == 1


def test_outputs_are_scaled_to_the_lowest_loss():
    number, kind = Target("a", "number"), Target("b", "binary", (0, 1))
    found = np.array([[1.0], [2.0]])
    assert fit_scale(number, found, np.array([0.5, 1.0])) == pytest.approx((0.5, 0))
    assert fit_scale(number, found, np.array([2.0, 4.0])) == pytest.approx((1.2, 1.6))
    # Three of four labels are right: 0.9 ** s / (0.9 ** s + 0.1 ** s) = 0.75.
    entropy = -0.75 * np.log(0.75) - 0.25 * np.log(0.25)
    scale, loss = fit_scale(kind, np.full((4, 1), 0.9), np.array([1, 1, 0, 1]))
    assert (scale, loss) == pytest.approx((0.5, entropy))
    assert_close(scaled(kind, np.array([[0.9]], "float32"), scale), [[0.75]], 1e-5)
    three = np.array([[0.64, 0.2, 0.16]], "float32")
    total = 0.8 + 0.2**0.5 + 0.4
    found = scaled(Target("c", "classes", (1, 2, 3)), three, 0.5)
    assert_close(found, [[0.8 / total, 0.2**0.5 / total, 0.4 / total]], 1e-5)


def test_area_counts_pairs_in_order():
    # Of the pairs (0.8, 0.3), (0.8, 0.5), (0.5, 0.3), (0.5, 0.5) the last is a tie.
    area = area_under_curve([1, 0, 0, 1], [0.8, 0.3, 0.5, 0.5])
    assert area == pytest.approx(3.5 / 4)
    assert area_under_curve([0, 1], [2.0, 1.0]) == 0
    assert area_under_curve([0, 0, 1, 1], np.zeros(4)) == 0.5


def test_area_that_cannot_be_had():
    assert math.isnan(area_under_curve([1, 1], [0.1, 0.2]))
    assert math.isnan(area_under_curve([0, 1], [0.1, np.nan]))


def test_equal_values_share_a_rank():
    np.testing.assert_array_equal(ranks(np.array([0, 1, 1, 5])), [1, 2.5, 2.5, 4])
