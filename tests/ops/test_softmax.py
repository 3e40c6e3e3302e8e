import warnings

import numpy as np
import pytest
from helpers import gradient, numbers, numpy
from keras import ops

from dselectk_keras.ops import softmax


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_values_follow_the_formula(axis):
    logits = numbers((2, 3, 4))
    powers = np.exp(logits)
    np.testing.assert_allclose(
        numpy(softmax(logits, axis=axis)),
        powers / powers.sum(axis=axis, keepdims=True),
        rtol=1e-5,
    )


def test_an_axis_of_length_one_gives_ones_without_a_warning_or_gradient():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = softmax([[1.0], [-1e30]])
    np.testing.assert_array_equal(numpy(weights), [[1], [1]])
    np.testing.assert_array_equal(gradient(softmax, np.array([[1.0], [-1e30]])), 0)


def test_minus_infinity_is_a_weight_of_zero_with_a_finite_gradient():
    logits = np.array([1.0, -np.inf, 1.0])
    np.testing.assert_array_equal(numpy(softmax(logits)), [0.5, 0, 0.5])
    upstream = [[1.0], [2.0], [3.0]]
    found = gradient(lambda v: ops.matmul(softmax(v)[None], upstream), logits)
    np.testing.assert_allclose(found, [-0.5, 0, 0.5], rtol=1e-6)


def test_huge_logits_stay_finite():
    largest = float(np.finfo("float32").max)
    logits = np.array([-largest, 1e30, largest])
    np.testing.assert_array_equal(numpy(softmax(logits)), [0, 0, 1])
    assert np.isfinite(gradient(lambda v: softmax(v)[..., 0], logits)).all()
