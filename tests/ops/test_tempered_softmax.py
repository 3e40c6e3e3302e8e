import numpy as np
import pytest
from helpers import gradient, numbers, numpy
from keras import ops

from dselectk_keras.ops import tempered_softmax

INF = float("inf")


@pytest.mark.parametrize("axis", [0, -1])
def test_it_is_the_softmax_of_the_quotient(axis):
    logits = numbers((3, 4))
    powers = np.exp(logits / 0.7)
    wanted = powers / powers.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(
        numpy(tempered_softmax(logits, 0.7, axis)), wanted, atol=1e-6
    )


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
    found = numpy(tempered_softmax(logits, temperature))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def slope(logits, temperature):
    upstream = ops.convert_to_tensor(numbers((len(logits),)))
    return gradient(
        lambda v: tempered_softmax(v, temperature) * upstream, np.array(logits)
    )


def test_the_gradient_follows_the_formula():
    p = numpy(tempered_softmax([0.1, -0.2, 0.5], 0.5))
    u = numbers((3,))
    wanted = p * (u - (p * u).sum()) / 0.5
    np.testing.assert_allclose(slope([0.1, -0.2, 0.5], 0.5), wanted, atol=1e-6)


def test_cold_logits_that_differ_have_no_gradient():
    np.testing.assert_array_equal(slope([0.1, -0.2, 0.1000001], 1e-16), 0)


@pytest.mark.parametrize("logits", [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1e30, 1e30, 0]])
def test_cold_ties_have_a_finite_gradient_that_parts_them(logits):
    found = slope(logits, 1e-16)
    assert np.isfinite(found).all()
    # Adam squares it.
    assert np.isfinite(np.square(found)).all()
    order = np.argsort(numbers((3,))[: sum(v == max(logits) for v in logits)])
    assert (np.diff(found[order]) > 0).all()
