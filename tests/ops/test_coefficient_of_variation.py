import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import gradient, numpy

from dselectk_keras.ops import coefficient_of_variation


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_values_along_any_axis(axis):
    x = np.random.default_rng(0).uniform(size=(3, 4, 5))
    found = numpy(coefficient_of_variation(x, axis=axis))
    assert_close(found, x.std(axis) / x.mean(axis), rtol=1e-5)


def test_gradient_follows_the_formula():
    x = np.array([1.0, 2.0, 6.0])
    n, mean, std = len(x), x.mean(), x.std()
    wanted = (x - mean) / (n * std * mean) - std / (n * mean**2)
    assert_close(gradient(coefficient_of_variation, x), wanted, rtol=1e-5)


@pytest.mark.parametrize("x", [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [7.0]])
def test_perfect_balance_has_no_gradient(x):
    assert float(coefficient_of_variation(x)) == 0.0
    assert_equal(gradient(coefficient_of_variation, np.array(x)), 0)
