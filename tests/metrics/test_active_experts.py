"""Counting the experts that a gate uses."""

import numpy as np
from helpers import refusals

from dselectk_keras.metrics import active_experts


def test_weights_above_the_tolerance_are_counted_along_the_last_axis():
    weights = np.zeros((3, 5, 4))
    weights[1, 2, :3] = 1 / 3
    counts = active_experts(weights)
    assert counts.shape == (3, 5)
    assert counts[1, 2] == 3
    assert counts.sum() == 3
    assert active_experts([0.75, 0.25], tolerance=0.25) == 1
    assert active_experts([0.75, 0.25], tolerance=0.2) == 2
    assert active_experts(np.array([1.0, np.finfo("float32").tiny], "float32")) == 2


def test_a_higher_tolerance_never_counts_more():
    weights = np.random.default_rng(0).dirichlet(np.ones(16), size=50)
    counts = [active_experts(weights, t) for t in (0.0, 0.01, 0.1, 0.5, 1.0)]
    assert (np.diff(counts, axis=0) <= 0).all()
    assert (counts[0] == 16).all()
    assert (counts[-1] == 0).all()


test_what_cannot_be_counted_is_refused = refusals(
    (
        active_experts,
        "`weights` must have the experts as its last",
        *(1.0, np.zeros((3, 0))),
    ),
    (active_experts, "Received NaN among them", [0.5, np.nan]),
    (
        active_experts,
        r"`tolerance` must be .* at least 0. Received",
        *(([1.0], -1e-9), ([1.0], np.nan)),
    ),
)
