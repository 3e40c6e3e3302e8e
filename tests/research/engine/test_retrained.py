"""A model that is trained again is as new."""

import keras
import numpy as np
import pytest

from dselectk_keras.batches import Batches
from research.engine.retrained import Retrained

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype("float32")
TRAIN = X, X[:, :1] ** 2
HALVED = X / 2, X[:, :1]


def build(learning_rate):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adagrad(learning_rate), "mse")
    return model


def alone(data, seed, learning_rate):
    keras.utils.set_random_seed(seed)
    model = build(learning_rate)
    options = {"shuffle": False, "verbose": 0, "validation_batch_size": 40}
    batches = Batches(data, 16, seed)
    log = model.fit(batches, epochs=3, validation_data=HALVED, **options)
    return model.get_weights(), log.history


@pytest.mark.parametrize("callbacks", [(), (keras.callbacks.LambdaCallback(),)])
def test_each_job_is_as_if_trained_alone(callbacks):
    retrained = Retrained(build, batch_size=16)
    jobs = [(TRAIN, 0, 0.1), (TRAIN, 0, 0.01), (HALVED, 1, 0.01), (TRAIN, 0, 0.1)]
    for data, seed, rate in jobs:
        options = {"validation": HALVED, "callbacks": callbacks, "learning_rate": rate}
        model = retrained.train(data, seed, 3, **options)
        weights, history = alone(data, seed, rate)
        for mine, expected in zip(model.get_weights(), weights, strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-6)
        assert retrained.history.keys() == history.keys()
        for name, losses in history.items():
            np.testing.assert_allclose(retrained.history[name], losses, rtol=1e-4)
