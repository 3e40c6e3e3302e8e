"""Labels keep their distance and stay near their lines."""

import numpy as np
import pytest

from dselectk_keras.plots.label_ends import spread_positions


def test_places_far_enough_apart_are_kept():
    np.testing.assert_allclose(
        spread_positions([0.9, 0.1, 0.5], gap=0.2), [0.9, 0.1, 0.5]
    )


def test_equal_places_part_evenly_around_the_same_middle():
    np.testing.assert_allclose(
        spread_positions([0.5, 0.5, 0.5], gap=0.1), [0.4, 0.5, 0.6]
    )


def test_places_stay_inside():
    np.testing.assert_allclose(spread_positions([0.0, 0.0], gap=0.1), [0.0, 0.1])
    np.testing.assert_allclose(spread_positions([1.0, 1.0], gap=0.1), [0.9, 1.0])


def test_the_gap_shrinks_when_there_is_no_room():
    np.testing.assert_allclose(
        spread_positions([0.2] * 5, gap=1.0), [0, 0.25, 0.5, 0.75, 1]
    )


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
