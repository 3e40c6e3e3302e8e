import numpy as np
from helpers import gradient

from dselectk_keras import LoadRegularizer


def test_value_by_hand():
    # The experts expect 1 and 3 examples: the coefficient of variation is 1/2.
    probabilities = [[0.5, 1.0], [0.25, 1.0], [0.25, 1.0]]
    np.testing.assert_allclose(
        float(LoadRegularizer(2.0)(probabilities)), 2 * 0.25, rtol=1e-6
    )


def test_several_gates_are_summed_not_pooled():
    probabilities = [[[1.0, 0.0], [0.0, 1.0]]] * 3
    assert float(LoadRegularizer(1.0)(probabilities)) == 2.0


def test_balance_has_no_gradient():
    found = gradient(LoadRegularizer(1.0), np.full((4, 3), 0.5))
    np.testing.assert_array_equal(found, 0)
