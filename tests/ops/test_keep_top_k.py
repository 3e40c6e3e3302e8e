import numpy as np
import pytest
from checks import assert_equal
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
    assert_equal(keep_top_k([3.0, -1.0, 5.0, 2.0], k), wanted)


@pytest.mark.parametrize("k", [1, 2, 3, 8, 9])  # From 9 on, they are sorted.
def test_of_equal_logits_the_first_are_kept(k):
    kept = numpy(keep_top_k(np.zeros((2, 12)), k)) == 0
    assert_equal(kept, [np.arange(12) < k] * 2)


@pytest.mark.parametrize("k", [1, 8, 9, 12])
def test_a_row_with_nan_gives_nan(k):
    logits = np.zeros((2, 12), "float32")
    logits[0, 3] = np.nan
    found = np.isnan(numpy(softmax(keep_top_k(logits, k))))
    assert_equal(found, [[True] * 12, [False] * 12])


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_a_number_that_keeps_none_is_refused(k):
    with pytest.raises(ValueError, match=f"`k` must be a positive integer.*k={k}"):
        keep_top_k([1.0, 2.0], k)


@pytest.mark.parametrize("k", [2, 10])
def test_every_row_keeps_its_own(k):
    logits = numbers((2, 3, 12))
    kept = numpy(keep_top_k(logits, k))
    smallest = np.sort(logits, axis=-1)[..., -k, None]
    assert_equal(kept, np.where(logits >= smallest, logits, -INF))


def test_the_gradient_of_a_kept_logit_is_the_identity():
    found = gradient(
        lambda v: ops.where(ops.isfinite(keep_top_k(v, 2)), keep_top_k(v, 2), 0.0),
        np.array([3.0, -1.0, 5.0]),
    )
    assert_equal(found, [1, 0, 1])
