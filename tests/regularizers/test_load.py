import numpy as np
from checks import assert_close, assert_equal
from helpers import gradient

from dselectk_keras import LoadRegularizer


def test_value_by_hand_summed_over_gates_without_a_gradient_in_balance():
    # The experts expect 1 and 3 examples: the coefficient of variation is 1/2.
    probabilities = [[0.5, 1.0], [0.25, 1.0], [0.25, 1.0]]
    assert_close(float(LoadRegularizer(2.0)(probabilities)), 2 * 0.25, rtol=1e-6)
    assert float(LoadRegularizer(1.0)([[[1.0, 0.0], [0.0, 1.0]]] * 3)) == 2.0
    assert_equal(gradient(LoadRegularizer(1.0), np.full((4, 3), 0.5)), 0)
