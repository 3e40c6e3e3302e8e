"""The entropy of the mean weights."""

import math

import numpy as np
import pytest
from helpers import refusals

from dselectk_keras.metrics import SampleEntropy, UtilizationEntropy


@pytest.mark.parametrize("base", [2, 3, math.e])
def test_by_hand(base):
    # Their mean is (1/2, 1/4, 1/4, 0): 1.5 bits.
    weights = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0.5, 0, 0.5, 0]]
    found = float(UtilizationEntropy(4, base)(weights))
    assert found == pytest.approx(1.5 * math.log(2) / math.log(base))


def test_balance_and_collapse_are_exact():
    assert float(UtilizationEntropy(4)(np.eye(4))) == 2.0
    collapse = float(UtilizationEntropy(4)(np.eye(4)[[2] * 4]))
    assert collapse == 0.0
    assert math.copysign(1, collapse) == 1


def test_batches_and_gates_are_pooled_and_sample_weights_shift_the_mean():
    # The entropy within each batch is 0.
    metric = UtilizationEntropy(4)
    for expert in (1, 3):
        metric.update_state(np.eye(4)[[expert] * 4])
    assert float(metric.result()) == 1.0
    # Each gate always uses one expert; together they use two.
    weights = np.tile(np.eye(4)[:2], (4, 1, 1))
    assert float(UtilizationEntropy(4)(weights)) == 1.0
    assert float(UtilizationEntropy(4)(weights[:, 0])) == 0.0
    found = float(UtilizationEntropy(4)(np.eye(4), sample_weight=[3, 1, 0, 0]))
    assert found == pytest.approx(-(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)))


@pytest.mark.parametrize("concentration", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("shape", [(4, 4), (4, 2, 4)])
def test_between_the_sample_entropy_and_that_of_balance(shape, concentration):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(4, concentration), shape[:-1])
    sample_weight = rng.random(4)
    lower = float(SampleEntropy()(weights, sample_weight))
    assert lower < float(UtilizationEntropy(4)(weights, sample_weight)) < 2


UPDATE = UtilizationEntropy(4).update_state
test_what_cannot_be_is_refused = refusals(
    (UPDATE, r"n=4 experts\. Received shape: \(2, 3\)", np.ones((2, 3))),
    (UPDATE, r"shape \(batch, n\) or \(batch, g, n\) with", np.ones(4)),
    (UtilizationEntropy, "`num_experts` must be a positive", 0, -1, 2.0, True),
)
