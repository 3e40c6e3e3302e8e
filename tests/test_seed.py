"""To set a seed starts random numbers anew, though TensorFlow keeps its kernels."""

import keras
import numpy as np
import pytest
from helpers import numpy

pytestmark = pytest.mark.backend_independent


def drawn(draw, times=2):
    """What some calls give after each of two settings of the same seed."""
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        found.append([numpy(draw()) for _ in range(times)])
    return np.array(found)


def test_operations_without_a_state_start_anew():
    first, second = drawn(lambda: keras.random.normal((3,)))
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()


def test_operations_with_a_state_start_anew():
    import tensorflow as tf

    first, second = drawn(lambda: tf.random.normal((3,)))
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()


def test_shuffled_training_starts_anew():
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")

    def losses():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model.fit(x, x[:, 0], batch_size=4, epochs=2, verbose=0).history["loss"]

    first, second = drawn(losses, times=1)
    np.testing.assert_array_equal(first, second)
