import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy

from dselectk_keras import ImportanceRegularizer, SoftmaxGate

CASES = [
    Case("softmax", SoftmaxGate, dense=True),
    Case(
        "softmax with bias",
        lambda **kwargs: SoftmaxGate(
            use_bias=True, weights_regularizer=ImportanceRegularizer(0.1), **kwargs
        ),
        penalties=("weights",),
        dense=True,
    ),
]


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_a_static_gate_is_the_softmax_of_its_logits():
    gate = SoftmaxGate()
    gate.build((None, 3))
    gate.set_weights([np.log([1.0, 2.0, 5.0])])
    np.testing.assert_allclose(
        numpy(gate.expert_weights()), [0.125, 0.25, 0.625], rtol=1e-5
    )


@pytest.mark.parametrize("num_gates", [None, 2])
@pytest.mark.parametrize("use_bias", [False, True])
def test_a_per_example_gate_is_the_softmax_of_an_affine_map(use_bias, num_gates):
    gate = SoftmaxGate(use_bias=use_bias, num_gates=num_gates)
    gate.build((None, 3), (None, 4))
    gate.set_weights(
        [numbers(w.shape, seed=i) for i, w in enumerate(gate.trainable_weights)]
    )
    kernel, *bias = map(numpy, gate.trainable_weights)
    x = numbers((5, 4))
    logits = sum(bias, x @ kernel).reshape(5, *gate.gate_shape, 3)
    np.testing.assert_allclose(
        numpy(gate.expert_weights(x)), softmax(logits), atol=1e-6
    )
    assert len(bias) == use_bias


def test_the_kernel_starts_where_its_initializer_says():
    gate = SoftmaxGate(kernel_initializer="ones")
    gate.build((None, 3))
    np.testing.assert_array_equal(numpy(gate.trainable_weights[0]), np.ones(3))
