"""The router z-loss keeps the logits of a gate small."""

import numpy as np
import pytest
from checks import assert_close
from helpers import gradient, numbers, numpy, softmax
from keras import ops

from dselectk_keras import DSelectKGate, SoftmaxGate, TopKGate
from dselectk_keras.regularizers import RouterZRegularizer

LOGITS = numbers((3, 4), scale=2.0)


def test_equals_the_squared_logarithms_by_hand():
    logs = np.log(np.exp(LOGITS).sum(-1))
    found = RouterZRegularizer(0.5)(LOGITS)
    assert float(found) == pytest.approx(0.5 * (logs**2).sum(), rel=1e-5)


def test_its_gradient_lowers_the_logits_by_their_softmax():
    found = gradient(RouterZRegularizer(0.5).term, LOGITS)
    logs = np.log(np.exp(LOGITS).sum(-1, keepdims=True))
    assert_close(found, 2 * logs * softmax(LOGITS), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cls", [SoftmaxGate, lambda **kw: TopKGate(1, **kw)])
def test_a_gate_adds_its_mean_over_the_examples_and_sum_over_gates(cls):
    gate = cls(num_gates=2, z_reg=0.3)
    x = numbers((5, 3))
    gate(ops.ones((5, 4, 1)), x, training=True)
    kernel = numpy(gate.trainable_variables[0])
    logs = np.log(np.exp((x @ kernel).reshape(5, 2, 4)).sum(-1))
    assert_close(gate.losses[0], 0.3 * (logs**2).sum() / 5, rtol=1e-5)
    assert type(gate).from_config(gate.get_config()).z_reg.weight == 0.3


def test_a_gate_without_logits_of_experts_has_none():
    with pytest.raises(ValueError, match="z_reg"):
        DSelectKGate(2, z_reg=0.1)
