import warnings

import helpers
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import gradient, numbers, numpy
from keras import ops

from dselectk_keras.ops import softmax

INF = float("inf")


@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_values_follow_the_formula(axis, temperature):
    logits = numbers((2, 3, 4))
    wanted = helpers.softmax(logits / (temperature or 1), axis)
    assert_close(softmax(logits, temperature, axis), wanted, rtol=1e-5)


def test_an_axis_of_length_one_gives_ones_without_a_warning_or_gradient():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = softmax([[1.0], [-1e30]])
    assert_equal(weights, [[1], [1]])
    assert_equal(gradient(softmax, np.array([[1.0], [-1e30]])), 0)


def test_infinite_and_huge_logits_have_finite_values_and_gradients():
    logits = np.array([1.0, -np.inf, 1.0])
    assert_equal(softmax(logits), [0.5, 0, 0.5])
    upstream = [[1.0], [2.0], [3.0]]
    found = gradient(lambda v: ops.matmul(softmax(v)[None], upstream), logits)
    assert_close(found, [-0.5, 0, 0.5], rtol=1e-6)
    largest = float(np.finfo("float32").max)
    logits = np.array([-largest, 1e30, largest])
    assert_equal(softmax(logits), [0, 0, 1])
    assert np.isfinite(gradient(lambda v: softmax(v)[..., 0], logits)).all()


@pytest.mark.parametrize(
    ("logits", "wanted"),
    [
        ([1.0, 1.0000001, 0.0], [0, 1, 0]),
        ([2.0, 2.0, 1.0], [0.5, 0.5, 0]),
        ([0.0, 0.0, 0.0, 0.0], [0.25] * 4),
        ([1e30, -1e30, 1e29], [1, 0, 0]),
        ([-INF, 0.0, -INF], [0, 1, 0]),
        ([3.0], [1]),
    ],
)
@pytest.mark.parametrize("temperature", [1e-16, 0.0])
def test_the_coldest_is_hard_and_finite(logits, wanted, temperature):
    assert_close(softmax(logits, temperature), wanted, rtol=1e-6)


def slope(logits, temperature):
    upstream = ops.convert_to_tensor(numbers((len(logits),)))
    return gradient(lambda v: softmax(v, temperature) * upstream, np.array(logits))


def test_the_gradient_follows_the_formula_and_is_none_for_cold_logits_that_differ():
    p = numpy(softmax([0.1, -0.2, 0.5], 0.5))
    u = numbers((3,))
    assert_close(slope([0.1, -0.2, 0.5], 0.5), p * (u - (p * u).sum()) / 0.5, atol=1e-6)
    assert_equal(slope([0.1, -0.2, 0.1000001], 1e-16), 0)


@pytest.mark.parametrize("logits", [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1e30, 1e30, 0]])
def test_cold_ties_have_a_finite_gradient_that_parts_them(logits):
    found = slope(logits, 1e-16)
    assert np.isfinite(found).all()
    # Adam squares it.
    assert np.isfinite(np.square(found)).all()
    order = np.argsort(numbers((3,))[: sum(v == max(logits) for v in logits)])
    assert (np.diff(found[order]) > 0).all()
