import numpy as np
import pytest
from checks import assert_close
from helpers import gradient

from dselectk_keras.ops import entropy


def test_values_by_hand():
    p = [[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0]]
    assert_close(entropy(p, epsilon=0.0), np.log(2) * np.array([1, 2, 1.5]), rtol=1e-6)
    p = np.array([0.1, 0.9])
    wanted = -(p * np.log(p + 0.01)).sum()
    assert_close(float(entropy(p, epsilon=0.01)), wanted, rtol=1e-5)
    assert float(entropy([0.0, 1.0, 0.0], epsilon=0.0)) == 0.0
    assert -2e-6 < float(entropy([0.0, 1.0, 0.0])) < 0.0
    p = np.array([0.5, 0.5], "float16")
    assert_close(float(entropy(p)), np.log(2), rtol=1e-5)


@pytest.mark.parametrize(("axis", "shape"), [(0, (3, 4)), (1, (2, 4)), ((1, 2), (2,))])
def test_sums_over_the_axes_asked_for(axis, shape):
    p = np.random.default_rng(0).uniform(size=(2, 3, 4))
    wanted = -(p * np.log(p + 1e-6)).sum(axis=axis)
    assert_close(entropy(p, axis=axis), wanted, rtol=1e-5)
    assert wanted.shape == shape


def test_gradient_follows_the_formula():
    p = np.array([1e-3, 0.2, 0.5, 1.0])
    wanted = -np.log(p + 1e-6) - p / (p + 1e-6)
    assert_close(gradient(entropy, p), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_gradient_is_finite_at_the_corners(epsilon):
    p = np.array([0.0, 1.0, 1e-30, 1e-45])
    assert np.isfinite(gradient(lambda p: entropy(p, epsilon=epsilon), p)).all()
