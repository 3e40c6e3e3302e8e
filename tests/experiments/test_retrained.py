"""A model that is trained again is as new."""

import keras
import numpy as np
import pytest

from dselectk_keras.batches import Batches
from experiments import Retrained

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype("float32")
TRAIN = X, X[:, :1] ** 2


def build(learning_rate):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adagrad(learning_rate), "mse")
    return model


def alone(seed, learning_rate):
    keras.utils.set_random_seed(seed)
    model = build(learning_rate)
    model.fit(Batches(TRAIN, 16, seed), epochs=3, shuffle=False, verbose=0)
    return model.get_weights()


@pytest.mark.parametrize("callbacks", [(), (keras.callbacks.LambdaCallback(),)])
def test_each_job_is_as_if_trained_alone(callbacks):
    retrained = Retrained(build, TRAIN, batch_size=16)
    for seed, rate in [(0, 0.1), (0, 0.01), (1, 0.01), (0, 0.1)]:
        model = retrained.train(seed, 3, callbacks, learning_rate=rate)
        for mine, expected in zip(model.get_weights(), alone(seed, rate), strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-6)
