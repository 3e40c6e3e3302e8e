"""The result of one call of a gate: its selectors, and its penalties."""

import numpy as np
import pytest
from checks import assert_close, assert_equal
from keras import ops

from dselectk_keras.gates import Routing


def test_a_selector_is_binary_by_its_bits_or_by_one_expert():
    # Of three experts: the second; half of each of the last two; a code of no expert;
    # and the first one, but for a bit that is too small to change it.
    codes = [[0.0, 1.0], [0.5, 1.0], [1.0, 1.0], [1e-9, 0.0]]
    selectors = [[0.0, 1.0, 0.0], [0.0, 0.5, 0.25], [0.0, 0.0, 0.0], [1.0, 0.0, 1e-9]]
    selectors, codes = map(ops.convert_to_tensor, (selectors, codes))
    found = Routing(None, selectors=selectors, codes=codes).describe_selectors()
    assert_equal(found["binary"], [1, 0, 1, 1])
    assert_close(found["reachable"], [1, 0.75, 0, 1], rtol=1e-6)
    assert Routing(None).describe_selectors() == {}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, (1 + 2 + 5 + 6) / 2),
        ({"reduction": "sum"}, 1 + 2 + 5 + 6),
        ({"valid": None}, (1 + 2 + 3 + 4 + 5 + 6) / 3),
        # A static gate has one row, all of which counts.
        ({"per_example": False, "valid": None}, 1 + 2 + 3 + 4 + 5 + 6),
    ],
)
def test_a_penalty_is_a_mean_or_a_sum_over_examples_that_count(settings, wanted):
    values = ops.convert_to_tensor(np.arange(1.0, 7.0, dtype="float32").reshape(3, 2))
    valid = ops.convert_to_tensor([True, False, True])
    settings = {"per_example": True, "valid": valid, **settings}
    found = Routing(values, **settings).penalty(lambda x, step: ops.sum(x), values, 1)
    assert_close(found, wanted, rtol=1e-6)
