"""Counting the experts that a gate uses."""

import math

import numpy as np
import pytest

from dselectk_keras.metrics import ActiveExperts, active_experts


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


# 2, 1, 3 and 2 experts.
WEIGHTS = np.array(
    [[0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.2, 0.3, 0.5, 0], [0, 0.1, 0.9, 0]]
)


def test_streaming_by_hand():
    assert float(ActiveExperts()(WEIGHTS)) == 2.0
    assert float(ActiveExperts(tolerance=0.25)(WEIGHTS)) == 1.5


def test_streaming_agrees_with_counting():
    weights = np.random.default_rng(0).dirichlet(np.ones(4), (4, 2)).astype("float32")
    for tolerance in (0.0, 0.1, 0.3):
        found = float(ActiveExperts(tolerance)(weights))
        assert found == pytest.approx(active_experts(weights, tolerance).mean())


def test_streaming_a_static_gate():
    metric = ActiveExperts()
    metric.update_state([0.5, 0.5, 0.0, 0.0])
    metric.update_state([0.2, 0.3, 0.5, 0.0])
    assert float(metric.result()) == 2.5


def test_streaming_averages_over_the_gates_of_an_example():
    weights = WEIGHTS.reshape(2, 2, 4)
    assert float(ActiveExperts()(weights)) == 2.0
    assert float(ActiveExperts()(weights, sample_weight=[3, 1])) == 1.75


def test_streaming_shows_a_diverged_gate():
    weights = WEIGHTS.copy()
    weights[1, 1] = np.nan
    assert math.isnan(ActiveExperts()(weights))


def test_streaming_refuses_a_negative_tolerance():
    with pytest.raises(
        ValueError, match=r"`tolerance` must be .* at least 0. Received"
    ):
        ActiveExperts(tolerance=-0.1)
