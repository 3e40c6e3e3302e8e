"""The distances of all pairs of networks, without a loop over pairs."""

import itertools

import keras
import numpy as np
from helpers import gradient, numbers

from dselectk_keras import ParameterDistanceRegularizer, Ramp

STACKED = [numbers((4, 3, 2)), numbers((4, 5), seed=1)]


def test_is_the_sum_over_all_pairs():
    pairs = sum(
        np.square(part[t] - part[u]).sum()
        for t, u in itertools.combinations(range(4), 2)
        for part in STACKED
    )
    np.testing.assert_allclose(
        float(ParameterDistanceRegularizer(0.5)(STACKED)), 0.5 * pairs, rtol=1e-5
    )


def test_is_nothing_for_one_network_or_equal_ones():
    regularizer = ParameterDistanceRegularizer(1.0)
    assert float(regularizer([part[:1] for part in STACKED])) == 0.0
    assert float(regularizer([np.ones((3, 2), "float32")])) == 0.0


def test_its_gradient_points_away_from_the_others():
    regularizer = ParameterDistanceRegularizer(0.5)
    found = gradient(lambda part: regularizer([part]), STACKED[0])
    mean = STACKED[0].mean(axis=0)
    np.testing.assert_allclose(found, 4 * (STACKED[0] - mean), rtol=1e-4, atol=1e-6)


def test_half_precision_does_not_overflow():
    apart = keras.ops.cast([[300.0], [-300.0]], "float16")
    assert float(ParameterDistanceRegularizer(1.0)([apart])) == 360_000.0


def test_the_config_rebuilds_it():
    regularizer = ParameterDistanceRegularizer(Ramp(0.1, 1.0, end=9))
    rebuilt = keras.regularizers.deserialize(keras.regularizers.serialize(regularizer))
    assert isinstance(rebuilt, ParameterDistanceRegularizer)
    assert rebuilt.get_config() == regularizer.get_config()
