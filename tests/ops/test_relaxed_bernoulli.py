import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import gradient, numpy
from keras import ops

from dselectk_keras.ops import relaxed_bernoulli

Z = np.linspace(-3, 3, 7, dtype="float32")


@pytest.mark.parametrize("temperature", [5.0, 1.0, 0.1, 1e-16, 0.0])
def test_half_is_passed_with_the_probability(temperature):
    draws = numpy(relaxed_bernoulli(np.tile(Z, (20_000, 1)), temperature, seed=0))
    assert_close((draws > 0.5).mean(axis=0), 1 / (1 + np.exp(-Z)), atol=0.015)


def draw_always(u, monkeypatch):
    def always(shape, **_):
        return ops.full(shape, u, "float32")

    monkeypatch.setattr(keras.random, "uniform", always)


def test_values_by_hand(monkeypatch):
    draw_always(0.75, monkeypatch)
    # log(0.75 / 0.25) = log 3: sigmoid(log 3 / 2) is sqrt(3) / (1 + sqrt(3)).
    found = numpy(relaxed_bernoulli([0.0, -np.log(3.0)], 2.0, seed=0))
    assert_close(found, [3**0.5 / (1 + 3**0.5), 0.5], rtol=1e-6)


def test_cold_draws_are_hard():
    draws = numpy(relaxed_bernoulli(np.zeros(1000), 1e-16, seed=0))
    assert set(draws.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("temperature", [2.0, 0.5])
def test_the_gradient_is_that_of_the_draw(temperature):
    draws = numpy(relaxed_bernoulli(Z, temperature, seed=4))
    found = gradient(lambda z: relaxed_bernoulli(z, temperature, seed=4), Z)
    assert_close(found, draws * (1 - draws) / temperature, atol=1e-5)
    assert (found > 0).all()


@pytest.mark.parametrize("u", [0.0, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 1e-16])
def test_the_ends_of_the_uniform_numbers_are_finite(monkeypatch, u, temperature):
    draw_always(u, monkeypatch)
    assert_close(relaxed_bernoulli(Z, temperature, seed=0), u, atol=1e-4)
    slope = gradient(lambda z: relaxed_bernoulli(z, temperature, seed=0), Z)
    assert np.isfinite(slope).all()
