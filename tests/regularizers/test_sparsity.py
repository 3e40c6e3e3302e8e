import numpy as np
from helpers import gradient, numbers

from dselectk_keras import SparsityRegularizer


def test_value_by_hand_and_descent_lowers_the_probabilities():
    log_psi = np.log([[0.5, 0.25], [1.0, 0.125]])
    value = SparsityRegularizer(2.0)(log_psi)
    np.testing.assert_allclose(float(value), -2 * 6 * np.log(2), rtol=1e-6)
    found = gradient(SparsityRegularizer(0.5), -np.abs(numbers((3, 4))))
    np.testing.assert_array_equal(found, 0.5)
