import itertools

import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import gradient, numpy
from keras import ops

from dselectk_keras.ops import binary_codes, selector_product


def brute_force(bits, num_experts):
    """The product over all bits of all codes, in float64."""
    bits = np.asarray(bits, "float64")[..., None, :]
    return np.where(binary_codes(num_experts), bits, 1 - bits).prod(axis=-1)


def brute_force_gradient(bits, num_experts, upstream):
    """Without a bit, the product over the others is what the bit multiplies."""
    bits = np.asarray(bits, "float64")
    codes = binary_codes(num_experts)
    result = np.zeros_like(bits)
    for j in range(bits.shape[-1]):
        terms = np.where(codes, bits[..., None, :], 1 - bits[..., None, :])
        terms[..., j] = np.where(codes[:, j], 1.0, -1.0)
        result[..., j] = (terms.prod(axis=-1) * upstream).sum(axis=-1)
    return result


@pytest.mark.parametrize("num_experts", [2, 3, 7, 8, 20])
def test_values_follow_the_formula(num_experts):
    num_bits = binary_codes(num_experts).shape[1]
    bits = np.random.default_rng(0).uniform(size=(4, 3, num_bits))
    found = numpy(selector_product(bits, num_experts))
    assert_close(found, brute_force(bits, num_experts), atol=1e-6)


@pytest.mark.parametrize("num_bits", [1, 3])
def test_binary_bits_choose_the_expert_of_their_code(num_bits):
    codes = np.array(list(itertools.product([0.0, 1.0], repeat=num_bits)))
    assert_equal(selector_product(codes, 2**num_bits), np.eye(2**num_bits))


@pytest.mark.parametrize("num_experts", [3, 6, 8])
def test_gradient_is_exact_also_where_bits_are_binary(num_experts):
    num_bits = binary_codes(num_experts).shape[1]
    bits = np.array(list(itertools.product([0.0, 0.3, 1.0], repeat=num_bits)))
    upstream = np.random.default_rng(0).normal(size=num_experts)
    column = upstream[:, None].astype("float32")
    found = gradient(
        lambda bits: ops.matmul(selector_product(bits, num_experts), column), bits
    )
    assert_close(found, brute_force_gradient(bits, num_experts, upstream), atol=1e-6)


def test_one_expert_needs_no_bits_and_too_few_are_refused():
    assert_equal(selector_product(np.zeros((5, 0)), num_experts=1), np.ones((5, 1)))
    with pytest.raises(ValueError, match="2 bits have codes for at most 4 experts"):
        selector_product([0.5, 0.5], num_experts=5)
