import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import gradient, refusals
from keras import ops

from dselectk_keras.ops import keep_largest

WEIGHTS = [[0.1, 0.6, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]]


@pytest.mark.parametrize(
    ("k", "wanted"),
    [
        (1, [[0, 1, 0, 0], [1, 0, 0, 0]]),
        (2, [[0, 0.75, 0.25, 0], [0.5, 0.5, 0, 0]]),
        (4, WEIGHTS),
        (9, WEIGHTS),
    ],
)
def test_values_by_hand(k, wanted):
    assert_close(keep_largest(WEIGHTS, k), wanted, rtol=1e-6)
    # There may be fewer positive weights than k.
    assert_equal(keep_largest([0.0, 1.0, 0.0], k + 1), [0, 1, 0])


test_a_number_that_keeps_none_is_refused = refusals(
    *(
        (keep_largest, f"`k` must be a positive integer.*k={k}", ([0.5, 0.5], k))
        for k in (0, -1)
    )
)


def test_gradient_by_hand():
    upstream = ops.convert_to_tensor([1.0, 3.0, 7.0])
    found = gradient(lambda w: keep_largest(w, 2) * upstream, [0.5, 0.25, 0.25])
    # The weights kept are (2/3, 1/3), with the mean 5/3, of a sum of 3/4.
    assert_close(found, np.array([1 - 5 / 3, 3 - 5 / 3, 0]) / 0.75, rtol=1e-5)
