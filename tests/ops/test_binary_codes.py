import numpy as np
import pytest
from helpers import refusals

from dselectk_keras.ops import binary_codes


@pytest.mark.parametrize("num_experts", [1, 2, 3, 8, 9, 100])
def test_codes_are_the_numbers_of_the_experts(num_experts):
    codes = binary_codes(num_experts)
    num_bits = codes.shape[1]
    assert codes.dtype == bool
    assert num_bits == np.ceil(np.log2(num_experts))
    places = 2 ** np.arange(num_bits)[::-1]
    assert (codes @ places).tolist() == list(range(num_experts))


test_a_wrong_number_is_refused = refusals(
    (binary_codes, "`num_experts` must be a positive integer", 0, -1, 2.5)
)
