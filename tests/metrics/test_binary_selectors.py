"""The share of selectors that have decided."""

import numpy as np
import pytest

from dselectk_keras import DSelectKGate
from dselectk_keras.metrics import BinarySelectors

# Two examples with two selectors each.
SELECTORS = np.array(
    [[[0, 1, 0, 0], [0.01, 0.99, 0, 0]], [[0, 0, 0, 0], [0.5, 0.5, 0, 0]]], "float32"
)


def test_by_hand():
    assert float(BinarySelectors()(SELECTORS)) == 0.5
    assert float(BinarySelectors()(np.tile(np.eye(4)[:2], (2, 1, 1)))) == 1.0


def test_every_entry_has_to_be_binary():
    selectors = SELECTORS.copy()
    selectors[0, 0, 2], selectors[1, 0, 0] = 1e-7, 1 - 1e-7
    assert float(BinarySelectors()(selectors)) == 0.0


@pytest.mark.parametrize(
    ("tolerance", "wanted"), [(0.005, 0.5), (0.011, 0.75), (0.5, 1.0)]
)
def test_tolerance_is_a_distance_to_zero_or_one(tolerance, wanted):
    assert float(BinarySelectors(tolerance)(SELECTORS)) == wanted


def test_sample_weights():
    selectors = SELECTORS.copy()
    selectors[0, 1] = selectors[0, 0]
    assert float(BinarySelectors()(selectors, sample_weight=[3, 1])) == 3.5 / 4


def test_float16_selectors():
    assert float(BinarySelectors()(SELECTORS.astype("float16"))) == 0.5


def test_of_a_gate():
    gate = DSelectKGate(num_nonzeros=2, num_gates=2)
    gate.build((None, 4))
    weights = [[0, 0.25, 0, 0.75], [1, 0, 0, 0]]
    metric = BinarySelectors()
    gate.assign_expert_weights(weights, slack=0.1)
    assert float(metric(gate.selector_outputs())) == 0.0
    gate.assign_expert_weights(weights)
    assert float(metric(gate.selector_outputs())) == 0.5


def test_selectors_have_an_axis():
    with pytest.raises(
        ValueError, match=r"`selectors` must have the shape \(..., k, n"
    ):
        BinarySelectors().update_state(np.ones(4))
    with pytest.raises(ValueError, match=r"`tolerance` must be .* at least 0"):
        BinarySelectors(tolerance=-1)
