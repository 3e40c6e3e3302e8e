"""Copies of a model share a program if its text is equal."""

import numpy as np
import pytest
from helpers import dense_model, numbers

from dselectk_keras.program import Program

X = numbers((10, 2))
DATA = X, X[:, :1]


@pytest.mark.backends("jax", reason="Only JAX has programs.")
def test_the_text_has_constants_but_no_variables():
    def text(model):
        own = Program(model, 2)
        return own.text(own.read([model]), np.arange(5)[None], DATA, DATA)

    first = text(dense_model(0))
    assert text(dense_model(1)) == first
    assert text(dense_model(0, momentum=0.5)) != first
