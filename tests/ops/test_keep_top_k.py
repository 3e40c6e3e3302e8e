import numpy as np
import pytest
from helpers import gradient, numbers, numpy
from keras import ops

from dselectk_keras.ops import keep_top_k, softmax

INF = float("inf")


@pytest.mark.parametrize(
    ("k", "wanted"),
    [
        (1, [-INF, -INF, 5, -INF]),
        (2, [3, -INF, 5, -INF]),
        (3, [3, -INF, 5, 2]),
        (4, [3, -1, 5, 2]),
        (9, [3, -1, 5, 2]),
    ],
)
def test_values_by_hand(k, wanted):
    np.testing.assert_array_equal(numpy(keep_top_k([3.0, -1.0, 5.0, 2.0], k)), wanted)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_of_equal_logits_the_first_are_kept(k):
    kept = numpy(keep_top_k(np.zeros((2, 4)), k)) == 0
    np.testing.assert_array_equal(kept, [np.arange(4) < k] * 2)


def test_every_row_keeps_its_own():
    logits = numbers((2, 3, 6))
    kept = numpy(keep_top_k(logits, 2))
    order = np.sort(logits, axis=-1)
    np.testing.assert_array_equal(
        kept, np.where(logits >= order[..., -2:-1], logits, -INF)
    )


def test_gradient_reaches_the_kept_logits_only():
    logits = numbers((5, 6))
    upstream = numbers((5, 6), seed=1)

    def loss(logits):
        return softmax(keep_top_k(logits, 2)) * ops.convert_to_tensor(upstream)

    found = gradient(loss, logits)
    kept = np.isfinite(numpy(keep_top_k(logits, 2)))
    np.testing.assert_array_equal(found != 0, kept)


def test_the_gradient_of_a_kept_logit_is_the_identity():
    found = gradient(
        lambda v: ops.where(ops.isfinite(keep_top_k(v, 2)), keep_top_k(v, 2), 0.0),
        np.array([3.0, -1.0, 5.0]),
    )
    np.testing.assert_array_equal(found, [1, 0, 1])
