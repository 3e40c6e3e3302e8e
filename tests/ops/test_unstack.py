"""Slices along any axis, with the gradient of what they are slices of."""

import numpy as np
import pytest
from checks import assert_equal
from helpers import gradient, numbers

from dselectk_keras.ops import unstack


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slices_are_those_of_numpy(axis):
    x = numbers((2, 3, 4))
    assert_equal(list(unstack(x, axis)), list(np.moveaxis(x, axis, 0)))


def test_each_slice_passes_its_gradient_on():
    found = gradient(
        lambda x: sum((i + 1) * s for i, s in enumerate(unstack(x, 1))), numbers((2, 3))
    )
    assert_equal(found, [[1.0, 2.0, 3.0]] * 2)
