import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numpy
from keras import ops

from dselectk_keras.ops import gumbel_noise


def test_mean_and_variance_are_those_of_the_distribution():
    noise = numpy(gumbel_noise((100_000,), seed=0))
    assert_close(noise.mean(), np.euler_gamma, atol=0.02)
    assert_close(noise.var(), np.pi**2 / 6, rtol=0.03)


def test_a_seed_repeats_and_a_generator_does_not():
    assert_equal(gumbel_noise((5,), seed=3), gumbel_noise((5,), seed=3))
    generator = keras.random.SeedGenerator(3)
    once, twice = (numpy(gumbel_noise((5,), generator)) for _ in range(2))
    assert (once != twice).all()


@pytest.mark.parametrize(("u", "wanted"), [(0.0, -2.811), (1.0, 16.636)])
def test_the_ends_of_the_uniform_numbers_are_finite(monkeypatch, u, wanted):
    monkeypatch.setattr(
        keras.random, "uniform", lambda shape, **_: ops.full(shape, u, "float32")
    )
    assert_close(gumbel_noise((2,), seed=0), wanted, atol=1e-3)
