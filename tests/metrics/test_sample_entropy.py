"""The entropy of single examples' weights."""

import math

import numpy as np
import pytest
from helpers import refusals

from dselectk_keras.metrics import SampleEntropy

# Over experts: 0, 1, 1.5 and 2 bits.
WEIGHTS = np.array(
    [[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0.25, 0, 0.25], [0.25] * 4], "float32"
)


@pytest.mark.parametrize("base", [2, 4, 10.0, math.e])
def test_by_hand(base):
    found = float(SampleEntropy(base)(WEIGHTS))
    assert found == pytest.approx(4.5 / 4 * math.log(2) / math.log(base))


def test_no_epsilon_bends_it_and_a_diverged_gate_shows():
    assert float(SampleEntropy()(np.full((4, 4), 0.25))) == 2.0
    weights = np.tile([1e-20, 1.0, 0.0, 0.0], (4, 1))
    assert float(SampleEntropy(math.e)(weights)) == pytest.approx(20e-20 * math.log(10))
    tiny = np.finfo("float32").smallest_subnormal
    for weights in (np.eye(4), np.tile(np.float32([tiny, 1, 0, 0]), (4, 1))):
        assert float(SampleEntropy()(weights)) == 0.0
    weights = WEIGHTS.copy()
    weights[0, 0] = math.nan
    assert math.isnan(SampleEntropy()(weights))


def test_several_gates_are_averaged():
    assert float(SampleEntropy()(WEIGHTS.reshape(2, 2, 4))) == pytest.approx(4.5 / 4)
    # The mean over gates comes before the sample weights.
    value = SampleEntropy()(WEIGHTS.reshape(2, 2, 4), sample_weight=[1, 3])
    assert float(value) == pytest.approx((0.5 + 3 * 1.75) / 4)


test_what_cannot_be_is_refused = refusals(
    (
        SampleEntropy,
        r"`base` must be .* above 1\. Received",
        *(1, 0.5, -2, 0, math.inf, math.nan, True, "2", None),
    ),
    (
        SampleEntropy().update_state,
        r"shape \(batch, n\) or \(batch, g, n\)\. Rec",
        *(np.ones(4), np.ones((2, 3, 4, 5))),
    ),
)
