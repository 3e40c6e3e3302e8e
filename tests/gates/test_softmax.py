from functools import partial

import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import built, numbers, numpy, softmax, spread

from dselectk_keras import ImportanceRegularizer, SoftmaxGate

CASES = [
    Case("softmax", SoftmaxGate, dense=True),
    Case(
        "softmax with bias",
        partial(
            SoftmaxGate, use_bias=True, weights_regularizer=ImportanceRegularizer(0.1)
        ),
        penalties=("weights",),
        dense=True,
    ),
]


def test_a_static_gate_is_the_softmax_of_its_logits():
    gate = built(SoftmaxGate(), 3, weights=[np.log([1.0, 2.0, 5.0])])
    assert_close(gate.expert_weights(), [0.125, 0.25, 0.625], rtol=1e-5)
    kernel = built(SoftmaxGate(kernel_initializer="ones")).trainable_weights[0]
    assert_equal(kernel, np.ones(5))


@pytest.mark.parametrize("num_gates", [None, 2])
@pytest.mark.parametrize("use_bias", [False, True])
def test_a_per_example_gate_is_the_softmax_of_an_affine_map(use_bias, num_gates):
    gate = SoftmaxGate(use_bias=use_bias, num_gates=num_gates)
    spread(built(gate, 3, 4))
    kernel, *bias = map(numpy, gate.trainable_weights)
    x = numbers((5, 4))
    logits = sum(bias, x @ kernel).reshape(5, *gate.gate_shape, 3)
    assert_close(gate.expert_weights(x), softmax(logits), atol=1e-6)
    assert len(bias) == use_bias
