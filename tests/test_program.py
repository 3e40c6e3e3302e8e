"""Copies of a model share a program if its text is equal."""

import keras
import numpy as np
import pytest
from helpers import numbers

from dselectk_keras.program import Program

X = numbers((10, 2))
DATA = X, X[:, :1]


def new_model(seed, momentum=0.0):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, momentum), "mse", metrics=["mae"])
    model.train_on_batch(X[:2], X[:2, :1])  # Creates the variables of the metrics.
    return model


@pytest.mark.backends("jax", reason="Only JAX has programs.")
def test_the_text_has_constants_but_no_variables():
    def text(model):
        own = Program(model, 2)
        return own.text(own.read([model]), np.arange(5)[None], DATA, DATA)

    first = text(new_model(0))
    assert text(new_model(1)) == first
    assert text(new_model(0, momentum=0.5)) != first
