"""Experts are dropped, but never all that have a weight."""

import numpy as np
from checks import assert_equal
from helpers import gradient
from keras import ops

from dselectk_keras.gates.dropout import drop_weights


def test_a_gate_keeps_its_weights_if_all_would_be_dropped():
    weights = np.tile(np.float32([1.0, 0.0, 0.0]), (50, 1))
    assert_equal(drop_weights(weights, 0.9, 3), weights)
    slope = gradient(lambda w: ops.square(drop_weights(w, 0.9, 3)), weights)
    assert np.isfinite(slope).all()
