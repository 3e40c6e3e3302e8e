import numpy as np
import pytest
from helpers import gradient, numbers, numpy
from keras import ops

from dselectk_keras.ops import squared_distances


@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 3), (4,), (1, 3)])
def test_values_follow_the_formula(shape):
    x = numbers(shape)
    flat = x.reshape(shape[0], -1)
    expected = ((flat[:, None] - flat[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(numpy(squared_distances(x)), expected, atol=1e-5)


def test_zero_on_the_diagonal_and_nowhere_below():
    # Each row twice, but for a little: there rounding goes below zero.
    x = numbers((20, 7), scale=30.0)
    found = numpy(squared_distances(np.concatenate([x, x + numbers(x.shape) / 1e4])))
    np.testing.assert_array_equal(np.diag(found), 0)
    np.testing.assert_array_equal(found, found.T)
    assert (found >= 0).all()
    np.testing.assert_allclose(np.diag(found, 20), 0, atol=1e-2)


def test_a_common_offset_loses_few_digits():
    x = numbers((5, 3)) + np.float32(1000)
    exact = x.astype("float64")
    expected = ((exact[:, None] - exact[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(numpy(squared_distances(x)), expected, rtol=1e-3)


def test_half_precision_is_computed_in_full():
    x = ops.cast([[0.0], [300.0]], "float16")
    found = numpy(squared_distances(x))
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, [[0, 90000], [90000, 0]])


def test_gradient_by_hand():
    # Of the distances from the first row: 2 (x_j - x_0), and minus their sum.
    x = numbers((4, 3))
    expected = 2 * (x - x[0])
    expected[0] = -expected.sum(axis=0)
    found = gradient(lambda v: squared_distances(v)[0], x)
    np.testing.assert_allclose(found, expected, atol=1e-5)
