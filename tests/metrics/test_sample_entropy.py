"""The entropy of single examples' weights."""

import math

import numpy as np
import pytest

from dselectk_keras.metrics import SampleEntropy

# Over experts: 0, 1, 1.5 and 2 bits.
WEIGHTS = np.array(
    [[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0.25, 0, 0.25], [0.25] * 4], "float32"
)


@pytest.mark.parametrize("base", [2, 4, 10.0, math.e])
def test_by_hand(base):
    found = float(SampleEntropy(base)(WEIGHTS))
    assert found == pytest.approx(4.5 / 4 * math.log(2) / math.log(base))


def test_a_single_expert_has_no_entropy_at_all():
    assert float(SampleEntropy()(np.eye(4))) == 0.0


def test_no_epsilon_bends_it():
    assert float(SampleEntropy()(np.full((4, 4), 0.25))) == 2.0
    weights = np.tile([1e-20, 1.0, 0.0, 0.0], (4, 1))
    found = float(SampleEntropy(math.e)(weights))
    assert found == pytest.approx(20e-20 * math.log(10))


def test_the_smallest_numbers_are_harmless():
    tiny = np.finfo("float32").smallest_subnormal
    weights = np.tile(np.float32([tiny, 1, 0, 0]), (4, 1))
    assert float(SampleEntropy()(weights)) == 0.0


def test_several_gates_are_averaged():
    assert float(SampleEntropy()(WEIGHTS.reshape(2, 2, 4))) == pytest.approx(4.5 / 4)
    # The mean over gates comes before the sample weights.
    value = SampleEntropy()(WEIGHTS.reshape(2, 2, 4), sample_weight=[1, 3])
    assert float(value) == pytest.approx((0.5 + 3 * 1.75) / 4)


def test_a_diverged_gate_shows():
    weights = WEIGHTS.copy()
    weights[0, 0] = math.nan
    assert math.isnan(SampleEntropy()(weights))


@pytest.mark.parametrize("base", [1, 0.5, -2, 0, math.inf, math.nan, True, "2", None])
def test_bases_are_above_one(base):
    with pytest.raises(ValueError, match=r"`base` must be .* above 1\. Received"):
        SampleEntropy(base)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4, 5)])
def test_weights_are_per_example(shape):
    with pytest.raises(
        ValueError, match=r"shape \(batch, n\) or \(batch, g, n\)\. Rec"
    ):
        SampleEntropy().update_state(np.ones(shape))
