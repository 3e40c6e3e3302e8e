import keras
import numpy as np
import pytest
from helpers import gradient, numbers

from dselectk_keras import Ramp, SparsityRegularizer


def test_value_by_hand():
    log_psi = np.log([[0.5, 0.25], [1.0, 0.125]])
    value = SparsityRegularizer(2.0)(log_psi)
    np.testing.assert_allclose(float(value), -2 * 6 * np.log(2), rtol=1e-6)


def test_descent_lowers_the_probabilities():
    found = gradient(SparsityRegularizer(0.5), -np.abs(numbers((3, 4))))
    np.testing.assert_array_equal(found, 0.5)


def test_the_weight_follows_its_schedule():
    regularizer = SparsityRegularizer(Ramp(1.0, 4.0, end=2))
    found = [float(regularizer([-1.0], step)) for step in (1, 2, 3)]
    np.testing.assert_allclose(found, [-2, -4, -4], rtol=1e-6)


@pytest.mark.parametrize("weight", [0.1, Ramp(0.1, 0.2, end=5)])
def test_config_round_trip(weight):
    regularizer = SparsityRegularizer(weight)
    config = keras.saving.serialize_keras_object(regularizer)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == regularizer.get_config()
    assert type(again.weight) is type(weight)
