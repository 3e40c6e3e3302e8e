"""Counting the experts that a gate uses."""

import numpy as np
import pytest

from dselectk_keras.metrics import active_experts


def test_leading_axes_are_kept():
    weights = np.zeros((3, 5, 4))
    weights[1, 2, :3] = 1 / 3
    counts = active_experts(weights)
    assert counts.shape == (3, 5)
    assert counts[1, 2] == 3
    assert counts.sum() == 3


def test_a_weight_at_the_tolerance_counts_as_none():
    assert active_experts([0.75, 0.25], tolerance=0.25) == 1
    assert active_experts([0.75, 0.25], tolerance=0.2) == 2


def test_the_smallest_positive_weight_counts_without_tolerance():
    assert active_experts(np.array([1.0, np.finfo("float32").tiny], "float32")) == 2


def test_a_higher_tolerance_never_counts_more():
    weights = np.random.default_rng(0).dirichlet(np.ones(16), size=50)
    counts = [active_experts(weights, t) for t in (0.0, 0.01, 0.1, 0.5, 1.0)]
    assert (np.diff(counts, axis=0) <= 0).all()
    assert (counts[0] == 16).all()
    assert (counts[-1] == 0).all()


@pytest.mark.parametrize("weights", [1.0, np.zeros((3, 0))])
def test_weights_need_an_axis_of_experts(weights):
    with pytest.raises(
        ValueError, match=r"`weights` must have the experts as its last"
    ):
        active_experts(weights)


def test_nan_weights_are_refused():
    with pytest.raises(ValueError, match=r"Received NaN among them"):
        active_experts([0.5, np.nan])


@pytest.mark.parametrize("tolerance", [-1e-9, np.nan])
def test_the_tolerance_is_non_negative(tolerance):
    with pytest.raises(
        ValueError, match=r"`tolerance` must be .* at least 0. Received"
    ):
        active_experts([1.0], tolerance)
