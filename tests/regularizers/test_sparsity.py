import numpy as np
from checks import assert_close, assert_equal
from helpers import gradient, numbers

from dselectk_keras import SparsityRegularizer


def test_value_by_hand_and_descent_lowers_the_probabilities():
    value = SparsityRegularizer(2.0)(np.log([[0.5, 0.25], [1.0, 0.125]]))
    assert_close(float(value), -2 * 6 * np.log(2), rtol=1e-6)
    assert_equal(gradient(SparsityRegularizer(0.5), -np.abs(numbers((3, 4)))), 0.5)
