"""A box holds the values of a search."""

import pytest

from common.spaces import box_around


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ((1, 3, 2), (int, {"low": 1, "high": 3, "log": False})),
        ((0.5, 1), (float, {"low": 0.5, "high": 1, "log": False})),
        # More than a factor of ten, of positive numbers.
        ((1, 10), (int, {"low": 1, "high": 10, "log": False})),
        ((1, 11), (int, {"low": 1, "high": 11, "log": True})),
        ((0.0, 11.0), (float, {"low": 0.0, "high": 11.0, "log": False})),
        ((False, True), None),
        (("a", 1), None),
    ],
)
def test_numbers_have_a_box(values, wanted):
    assert box_around(values) == wanted
