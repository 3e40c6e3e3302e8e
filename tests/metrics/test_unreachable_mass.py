"""The mass of selectors on codes of no expert."""

import math

import numpy as np
import pytest

from dselectk_keras import DSelectKGate
from dselectk_keras.metrics import UnreachableMass

# Missing: 0, 0.5 and 1, 0.25.
SELECTORS = np.array(
    [[[0, 1, 0, 0], [0.5, 0, 0, 0]], [[0, 0, 0, 0], [0.25, 0.25, 0.25, 0]]]
)


def test_by_hand():
    assert float(UnreachableMass()(SELECTORS)) == pytest.approx(1.75 / 4)


def test_too_much_by_rounding_does_not_count_against():
    selectors = SELECTORS.copy()
    selectors[0, 0, 0] = 2e-7
    assert float(UnreachableMass()(selectors)) == 1.75 / 4


def test_sample_weights():
    found = float(UnreachableMass()(SELECTORS, sample_weight=[3, 1]))
    assert found == pytest.approx((3 * 0.25 + 0.625) / 4)


def test_float16_selectors():
    assert float(UnreachableMass()(SELECTORS.astype("float16"))) == 1.75 / 4


def test_a_diverged_gate_shows():
    selectors = SELECTORS.copy()
    selectors[0, 0, 0] = math.nan
    assert math.isnan(UnreachableMass()(selectors))


@pytest.mark.parametrize(("unreachable", "wanted"), [(1.0, 0.25), ("assign", 0.0)])
def test_of_a_gate_that_starts_in_the_middle(unreachable, wanted):
    # All bits are 1/2: three of four codes with the same mass belong to experts.
    gate = DSelectKGate(2, num_gates=2, z_initializer="zeros", unreachable=unreachable)
    gate.build((None, 3))
    assert float(UnreachableMass()(gate.selector_outputs())) == wanted


def test_selectors_have_an_axis():
    with pytest.raises(
        ValueError, match=r"`selectors` must have the shape \(..., k, n"
    ):
        UnreachableMass().update_state(np.ones(4))
