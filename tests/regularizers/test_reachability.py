import numpy as np
from checks import assert_close, assert_equal
from helpers import gradient

from dselectk_keras import ReachabilityRegularizer


def test_value_and_gradient_by_hand_which_are_finite_without_any_mass():
    selectors = [[0.25, 0.25, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.0]]
    value = float(ReachabilityRegularizer(0.5)(selectors))
    assert_close(value, 0.5 * (2 + 1 + 5), rtol=1e-6)
    found = gradient(ReachabilityRegularizer(2.0), np.array([[0.25, 0.25]]))
    assert_close(found, [[-8, -8]], rtol=1e-6)
    nothing = np.zeros((1, 3))
    assert_close(float(ReachabilityRegularizer(1.0)(nothing)), 1e6)
    assert_equal(gradient(ReachabilityRegularizer(1.0), nothing), 0)
