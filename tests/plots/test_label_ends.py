"""Labels keep their distance and stay near their lines."""

import numpy as np
import pytest

from dselectk_keras.plots.label_ends import spread_positions


@pytest.mark.parametrize(
    ("positions", "gap", "wanted"),
    [
        ([0.9, 0.1, 0.5], 0.2, [0.9, 0.1, 0.5]),
        ([0.5, 0.5, 0.5], 0.1, [0.4, 0.5, 0.6]),
        ([0.0, 0.0], 0.1, [0.0, 0.1]),
        ([1.0, 1.0], 0.1, [0.9, 1.0]),
        # There is no room for the gap.
        ([0.2] * 5, 1.0, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_places_by_hand(positions, gap, wanted):
    np.testing.assert_allclose(spread_positions(positions, gap), wanted)


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_order_distance_and_bounds_hold_for_any_places(count):
    rng = np.random.default_rng(count)
    for _ in range(50):
        positions = rng.random(count) ** 3
        placed = spread_positions(positions, gap=0.1)
        assert placed.shape == (count,)
        ascending = placed[np.argsort(positions, kind="stable")]
        assert (np.diff(ascending) >= 0.1 - 1e-12).all()
        assert ((placed >= 0) & (placed <= 1 + 1e-12)).all()
