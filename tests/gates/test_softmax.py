import keras
import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy

from dselectk_keras import DenseExperts, ImportanceRegularizer, MoE, SoftmaxGate

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


def test_small_weights_are_dropped_at_inference_only():
    gate = SoftmaxGate(min_weight=0.2, dtype="float32")
    gate.build((None, 4))
    gate.set_weights([np.log([1.0, 2.0, 7.0, 10.0])])
    assert gate.max_experts(True) == 5
    kept = np.array([0.0, 0.0, 7.0, 10.0]) / 17
    np.testing.assert_allclose(numpy(gate.expert_weights()), kept, rtol=1e-5)
    trained = numpy(gate.route(training=True).weights)
    np.testing.assert_allclose(trained, [0.05, 0.1, 0.35, 0.5], rtol=1e-5)
    rebuilt = SoftmaxGate.from_config(gate.get_config())
    assert rebuilt.min_weight == 0.2
    # Equal weights are all kept.
    gate = SoftmaxGate("zeros", min_weight=1 / 3)
    gate.build((None, 3), (None, 2))
    found = numpy(gate.expert_weights(numbers((5, 2))))
    np.testing.assert_allclose(found, np.full((5, 3), 1 / 3), rtol=1e-5)


def test_dropped_weights_are_dispatched():
    bank = DenseExperts(8, [4])
    gate = SoftmaxGate(keras.initializers.RandomNormal(stddev=3), min_weight=0.1)
    layer = MoE(bank, gate, per_example=True, dispatch=True)
    x = numbers((16, 6))
    found = numpy(layer(x))
    weights = numpy(layer.expert_weights(x))
    assert (weights == 0).any(axis=1).all()
    wanted = np.einsum("bn,bnd->bd", weights, numpy(bank(x)))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("min_weight", [-0.1, 0.4])
def test_a_min_weight_above_an_equal_share_is_refused(min_weight):
    with pytest.raises(ValueError, match="`min_weight` must be"):
        SoftmaxGate(min_weight=min_weight).build((None, 3))


def test_the_kernel_starts_where_its_initializer_says():
    gate = SoftmaxGate(kernel_initializer="ones")
    gate.build((None, 3))
    np.testing.assert_array_equal(numpy(gate.trainable_weights[0]), np.ones(3))
