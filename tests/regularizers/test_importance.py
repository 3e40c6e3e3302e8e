import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import gradient

from dselectk_keras import ImportanceRegularizer


@pytest.mark.parametrize(("squared", "wanted"), [(False, 0.5), (True, 0.25)])
def test_value_by_hand(squared, wanted):
    # The experts get 1 and 3: their mean is 2, their standard deviation 1.
    weights = [[0.5, 0.5], [0.5, 0.5], [0.0, 1.0], [0.0, 1.0]]
    value = ImportanceRegularizer(2.0, squared=squared)(weights)
    assert_close(float(value), 2 * wanted, rtol=1e-6)


def test_gates_are_summed_and_balance_has_neither_value_nor_gradient():
    # Each gate is unbalanced; together they are balanced.
    weights = [[[1.0, 0.0], [0.0, 1.0]]] * 3
    assert float(ImportanceRegularizer(1.0)(weights)) == 2.0
    weights = np.array([[1.0, 0.0], [0.0, 1.0]])
    regularizer = ImportanceRegularizer(1.0)
    assert float(regularizer(weights)) == 0.0
    assert_equal(gradient(regularizer, weights), 0)
