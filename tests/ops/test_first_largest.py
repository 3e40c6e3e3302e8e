import numpy as np
import pytest
from checks import assert_equal
from helpers import gradient, numbers, numpy
from keras import ops

from dselectk_keras.ops import first_largest

INF = float("inf")


def test_one_entry_of_each_row_is_the_largest_and_none_of_a_row_with_nan():
    x = numbers((5, 3, 6))
    found = numpy(first_largest(x))
    assert found.dtype == bool
    assert_equal(found, np.eye(6)[x.argmax(axis=-1)] == 1)
    rows = [[1, 3, 3], [2, 2, 2], [-INF, -INF, -INF], [0, INF, INF], [-0.0, 0.0, -1]]
    found = numpy(first_largest(np.array(rows, "float32"))).argmax(axis=-1)
    assert_equal(found, [1, 0, 0, 1, 0])
    assert not numpy(first_largest([1.0, float("nan"), 2.0])).any()
    found = gradient(lambda x: ops.cast(first_largest(x), "float32") + x, [1.0, 2.0])
    assert_equal(found, [1, 1])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float16"])
def test_entries_of_any_type_are_compared(dtype):
    x = np.array([[1, 0, 1], [0, 0, 0]], dtype)
    assert_equal(numpy(first_largest(x)).argmax(axis=-1), [0, 0])
    assert numpy(first_largest(x)).sum() == 2
