"""Experts in 8 bits: what is stored, how far outputs move, and what is refused."""

import warnings

import keras
import numpy as np
import pytest
from helpers import numbers, numpy

from dselectk_keras import (
    DenseExperts,
    MoE,
    SmearExperts,
    SoftmaxGate,
    TopKGate,
    TuckerExperts,
    build_multitask_model,
)
from dselectk_keras.models import condense

N, DIM, UNITS = 6, 16, 5
X = numbers((8, DIM))


def bound(kernel, x=X):
    """How far rounding may move `x @ kernel`: half a step for each feature."""
    steps = np.abs(kernel).max(axis=1) / 127
    return 0.5001 * np.abs(x).sum(axis=1)[:, None, None] * steps + 1e-5


def pair(**settings):
    """A bank in 32 bits, and the same in 8."""
    banks = [DenseExperts(N, UNITS, "linear", **settings) for _ in range(2)]
    for bank in banks:
        bank.build((None, DIM))
    weights = [numbers(weight.shape, seed=3) for weight in banks[0].weights]
    for bank in banks:
        bank.set_weights(weights)
    banks[1].quantize("int8")
    return banks


def test_kernels_are_in_8_bits_and_outputs_move_by_half_a_step_at_most():
    whole, small = pair()
    kernel, bias = whole.get_weights()
    found = {weight.name: weight for weight in small.weights}
    assert found["kernel_0"].dtype == "int8"
    assert found["kernel_0"].shape == (N, DIM, UNITS)
    assert found["scale_0"].shape == (N, 1, UNITS)
    assert [weight.name for weight in small.trainable_weights] == ["bias_0"]
    moved = np.abs(numpy(small(X)) - numpy(whole(X)))
    assert moved.max() > 0
    assert (moved <= bound(kernel)).all()
    rounded = numpy(small.kernel(0))
    np.testing.assert_allclose(
        numpy(small(X)), np.einsum("bd,ndh->bnh", X, rounded) + bias, atol=1e-4
    )


@pytest.mark.parametrize("how", ["select", "slots", "merged"])
def test_every_way_to_evaluate_experts_uses_the_rounded_kernels(how):
    _, small = pair()
    outputs = numpy(small(X))
    if how == "select":
        found, outputs = small(X, select=[4, 1]), outputs[:, [4, 1]]
    elif how == "slots":
        found = small.call_slots(np.repeat(X[:1], N, axis=0))
        outputs = outputs[0]
    else:
        weights = np.full(N, 1 / N, "float32")
        found, outputs = small.call_merged(X, weights), outputs.mean(axis=1)
    np.testing.assert_allclose(numpy(found), outputs, atol=1e-4)


@pytest.mark.parametrize("dispatch", [False, True])
def test_a_quantized_layer_is_saved_and_condensed(tmp_path, dispatch):
    inputs = keras.Input((DIM,))
    bank = DenseExperts(N, [7, UNITS])
    layer = MoE(bank, TopKGate(2), per_example=dispatch, dispatch=dispatch)
    model = keras.Model(inputs, layer(inputs))
    before = numpy(model(X))
    bank.quantize("int8")
    after = numpy(model(X))
    assert 0 < np.abs(after - before).max() < 0.05
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(again(X)), after)
    found = again.layers[-1].experts
    assert [w.dtype for w in found.non_trainable_weights] == ["int8", "float32"] * 2
    if not dispatch:
        small = condense(again)
        assert small.layers[-1].experts.num_experts == 2
        np.testing.assert_allclose(numpy(small(X)), after, atol=1e-5)


@pytest.mark.traced
def test_a_model_quantizes_experts_and_towers_and_its_biases_train_on():
    model = build_multitask_model(DIM, 2, experts=DenseExperts(N, 7), gate=TopKGate(2))
    before = numpy(model(X)["task_0"])
    with warnings.catch_warnings():
        # Keras names the layers that stay as they are.
        warnings.simplefilter("ignore")
        model.quantize("int8")
    kernels = [w for w in model.weights if "kernel_" in w.name]
    assert kernels
    assert {weight.dtype for weight in kernels} == {"int8"}
    assert 0 < np.abs(numpy(model(X)["task_0"]) - before).max() < 0.05
    model.compile("sgd")
    stored = [numpy(weight) for weight in kernels]
    model.train_on_batch(X, numbers((8, 2)))
    for weight, value in zip(kernels, stored, strict=True):
        np.testing.assert_array_equal(numpy(weight), value)


def test_mixed_precision_keeps_the_scales():
    _, small = pair(dtype="mixed_bfloat16")
    (scale,) = [weight for weight in small.weights if weight.name == "scale_0"]
    assert scale.dtype == "float32"
    found = small(X)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    smear = SmearExperts(small, SoftmaxGate())
    assert tuple(smear(X).shape) == (8, UNITS)


def test_what_cannot_be_quantized_says_so_and_stays():
    whole, small = pair()
    with pytest.raises(ValueError, match="already quantized"):
        small.quantize("int8")
    outputs = numpy(whole(X))
    with pytest.raises(NotImplementedError, match=r'stored in 8 bits only.*"int8"'):
        whole.quantize("int4")
    np.testing.assert_array_equal(numpy(whole(X)), outputs)
    tucker = TuckerExperts(N, UNITS)
    tucker.build((None, DIM))
    with pytest.raises(NotImplementedError):
        tucker.quantize("int8")
