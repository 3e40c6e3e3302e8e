import math
from functools import partial

import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import gradient, numbers

from dselectk_keras.ops import top_k_probability


def brute_force(logits, noisy, scale, k):
    """Leave each expert out, sort the others, and read the normal distribution."""
    result = np.empty(logits.shape)
    for index in np.ndindex(logits.shape):
        *row, i = index
        others = np.sort(np.delete(noisy[tuple(row)], i))
        score = (logits[index] - others[-k]) / scale[index]
        result[index] = 0.5 * (1 + math.erf(score / math.sqrt(2)))
    return result


@pytest.fixture
def draw():
    logits = numbers((3, 2, 5)).astype("float64")
    scale = 0.5 + np.abs(numbers(logits.shape, seed=1))
    return logits, logits + scale * numbers(logits.shape, seed=2), scale


@pytest.mark.parametrize("k", [1, 2, 4])
def test_values_follow_the_formula(draw, k):
    assert_close(top_k_probability(*draw, k), brute_force(*draw, k), atol=1e-6)


@pytest.mark.parametrize("k", [3, 4])
def test_equal_noisy_logits_share_the_threshold_and_all_that_are_kept_are_certain(k):
    assert_equal(top_k_probability([1.0, 2, 3], [1.0, 2, 3], [1.0, 1, 1], k), 1)
    assert_equal(top_k_probability([1.0] * 3, [1.0] * 3, [1.0] * 3, k=2), [0.5] * 3)


def test_gradient_raises_the_logits():
    logits, noisy = np.array([0.0, 1.0]), np.array([0.5, 0.2])
    found, *_ = gradient(partial(top_k_probability, k=1), logits, noisy, np.ones(2))
    density = np.exp(-0.5 * np.square([0.0 - 0.2, 1.0 - 0.5])) / math.sqrt(2 * math.pi)
    assert_close(found, density, rtol=1e-5)


def test_without_noise_values_and_gradients_are_finite_and_equal_logits_have_none():
    logits = np.array([1.0, 2.0, 3.0])
    found = gradient(partial(top_k_probability, k=1), logits, logits, np.zeros(3))
    assert np.isfinite(found).all()
    given = np.array([1.0, 1.0, 3.0]), np.array([1.0, 1.0, 3.0]), np.zeros(3)
    assert_equal(top_k_probability(*given, k=2), [0.5, 0.5, 1.0])
    assert_equal(np.array(gradient(partial(top_k_probability, k=2), *given)), 0)
