"""Layers compute in the dtype of their policy, and their weights in float32."""

import keras
import numpy as np
import pytest
from checks import assert_close, dtype_of
from helpers import dtype_policy, numbers, numpy, spread
from keras import ops

import dselectk_keras as dk

X, TOKENS = numbers((4, 3)), numbers((4, 3, 3))
POLICIES = ("mixed_bfloat16", "float16")


def bank(policy, n=4, **settings):
    return dk.DenseExperts(n, [6, 3], ["tanh", None], dtype=policy, **settings)


def tokens(b, d):
    gate = dk.TopKGate(2, z_reg=0.1, dtype=d)
    return dk.MoE(bank(b), gate, per_example=True, dispatch=4.0, dtype=d)


def mmoe(b, d):
    return dk.MMoE(bank(b), dk.SoftmaxGate(dtype=d), 2, stacked=True, dtype=d)


def cgc(b, d):
    gate, shared = (dk.DSelectKGate(2, dtype=d) for _ in range(2))
    return dk.CGC(bank(b), gate, 2, per_example=True, shared_gate=shared, dtype=d)


# A layer, of a bank with one policy and of gates with another, and its inputs.
LAYERS = {
    "dense": (lambda b, _: bank(b), X),
    "dropout": (lambda b, _: bank(b, dropout=0.5), X),
    "gated": (lambda b, _: bank(b, gated=True), X),
    "tucker": (
        lambda b, _: dk.baselines.TuckerExperts(3, [4, 2], (2, 2, 2), dtype=b),
        X,
    ),
    "cross_stitch": (lambda _, d: dk.baselines.CrossStitch(0.25, dtype=d), TOKENS),
    "soft_moe": (lambda b, d: dk.baselines.SoftMoE(bank(b), dtype=d), TOKENS),
    "moe": (lambda b, d: dk.MoE(bank(b), dk.DSelectKGate(2, dtype=d), dtype=d), X),
    "tokens": (tokens, TOKENS),
    "mmoe": (mmoe, X),
    "cgc": (cgc, X),
    "smear": (
        lambda b, d: dk.SmearExperts(bank(b), dk.SoftmaxGate(dtype=d), dtype=d),
        TOKENS,
    ),
}
CASES = [
    *((name, each, each) for name in LAYERS for each in POLICIES),
    *((name, "mixed_bfloat16", "float32") for name in LAYERS),
    *((name, "float32", "mixed_float16") for name in LAYERS),
]


@pytest.mark.parametrize(("name", "of_bank", "of_layer"), CASES)
def test_outputs_have_the_dtype_of_the_layer_and_weights_are_in_full(
    name, of_bank, of_layer
):
    make, x = LAYERS[name]
    layer, full = make(of_bank, of_layer), make("float32", "float32")
    wanted, outputs = layer.compute_dtype, layer(x)
    spread(layer, 0.3)
    full.build(x.shape)
    full.set_weights([ops.cast(w, "float32") for w in layer.weights])
    assert dtype_of(outputs) == dtype_of(layer(keras.KerasTensor(x.shape))) == wanted
    assert dtype_of(layer(x, training=True)) == wanted
    assert {dtype_of(loss) for loss in layer.losses} <= {"float32"}
    if hasattr(layer, "gate"):
        seen = x if layer.gate.per_example else None
        assert dtype_of(layer.expert_weights(seen)) == "float32"
    assert_close(ops.cast(layer(x), "float32"), full(x), atol=0.05)


def branches():
    """A model of layers that XLA compiles beside each other, on padded tokens."""
    inputs = keras.Input((3, 3))
    x = keras.layers.Masking()(inputs)
    made = [dk.SmearExperts(bank(None), dk.SoftmaxGate(), per_example=True)]
    for gate, dispatch in (
        (dk.GumbelSoftmaxGate(seed=0), False),
        (dk.SwitchGate(), 1.5),
        (dk.TopKGate(2), True),
    ):
        made.append(dk.MoE(bank(None), gate, per_example=True, dispatch=dispatch))
    pools = [keras.layers.GlobalAveragePooling1D()(layer(x)) for layer in made]
    return keras.Model(inputs, keras.layers.Concatenate(dtype="float32")(pools)), made


@pytest.mark.traced
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_compiled_steps_of_mixed_precision_train_as_those_in_full(policy):
    full, _ = branches()
    with dtype_policy(policy):
        model, made = branches()
    model.set_weights(full.get_weights())
    spread(model, 0.3)
    full.set_weights(model.get_weights())
    x, on_tensorflow = TOKENS.copy(), keras.backend.backend() == "tensorflow"
    x[1:, 2] = 0.0
    # As Keras does with a GPU.
    settings = {"jit_compile": True} if on_tensorflow else {}
    model.compile(keras.optimizers.SGD(0.1), "mse", auto_scale_loss=False, **settings)
    found = model.predict(x, verbose=0)
    assert_close(found, full(x), atol=0.05)
    log = model.fit(x, np.ones((4, 12)), epochs=3, verbose=0).history["loss"]
    assert log[2] < log[0]
    assert all(np.isfinite(each).all() for each in map(numpy, model.weights))
    assert [int(layer.gate.step) for layer in made] == [3] * 4
