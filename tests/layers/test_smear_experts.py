"""One pass through the expert whose parameters are the weighted mean of all."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed
from helpers import (
    model_of,
    numbers,
    numpy,
    refusals,
    reloaded,
    softmax,
    spread,
    weight_gradients,
)
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras.layers.padding import Padding

N, BATCH, DIM, WIDTH = 4, 3, 5, 2
X, SEQUENCE = numbers((BATCH, DIM)), numbers((BATCH, 6, DIM))
IMAGES = numbers((BATCH, 4, 3, DIM))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
any_rank = pytest.mark.parametrize("x", [X, SEQUENCE], ids=["vectors", "sequences"])


def adapters(num_experts=N, **settings):
    settings = {"activation": ["swish", None], **settings}
    return dk.DenseExperts(num_experts, [WIDTH, DIM], **settings)


def filled(layer, inputs):
    """Build, and give all weights values that differ: gates far from equal ones."""
    layer(inputs)
    return spread(layer)


def merged_by_hand(bank, weights, x):
    """Each example through one expert with its own mean of the parameters.

    Args:
        bank: A bank of adapters.
        weights: `(batch, n)`, or `(batch, layers, n)`.
        x: What the experts see.
    """
    outputs = []
    w0, b0, w1, b1 = map(numpy, bank.weights)
    for example, shares in zip(x, weights, strict=True):
        first, second = shares if shares.ndim > 1 else (shares, shares)
        h = example @ np.tensordot(first, w0, 1) + first @ b0
        h = h / (1 + np.exp(-h))
        outputs.append(h @ np.tensordot(second, w1, 1) + second @ b1)
    return np.stack(outputs)


@pytest.mark.parametrize(
    ("x", "seen", "network"),
    [
        (X, X, None),
        (SEQUENCE, SEQUENCE.mean(axis=1), None),
        (IMAGES, IMAGES.mean(axis=(1, 2)), None),
        (SEQUENCE, SEQUENCE.max(axis=1), layers.GlobalMaxPooling1D),
    ],
    ids=["vectors", "sequences", "images", "network"],
)
def test_equals_the_merged_expert_by_hand(x, seen, network):
    routing = network and network()
    smear = dk.SmearExperts(adapters(), dk.SoftmaxGate(), routing_network=routing)
    weights = numpy(filled(smear, x).expert_weights(x))
    # One choice for each example, also where it is a sequence or an image.
    assert_close(weights, smear.gate.expert_weights(seen), rtol=1e-5)
    assert_close(smear(x), merged_by_hand(smear.experts, weights, x), **CLOSE)


@pytest.mark.parametrize("shape", [(BATCH, 7), (BATCH, 2, 7)])
def test_the_router_may_look_at_another_input(shape):
    v = numbers(shape, seed=5)
    smear = filled(dk.SmearExperts(adapters(), dk.SoftmaxGate()), (SEQUENCE, v))
    assert smear.gate.routing_dim == 7
    seen = v if v.ndim == 2 else v.mean(axis=1)
    weights = numpy(smear.gate.expert_weights(seen))
    assert_close(smear.expert_weights((SEQUENCE, v)), weights, rtol=1e-5)
    assert_close(
        smear((SEQUENCE, v)), merged_by_hand(smear.experts, weights, SEQUENCE), **CLOSE
    )


@pytest.mark.parametrize("per_layer", [False, True], ids=["gates", "layers"])
@pytest.mark.parametrize("inner", [(), (4,), (4, 2)], ids=["rows", "tokens", "images"])
def test_each_gate_may_have_routing_inputs_of_its_own(inner, per_layer):
    gate = dk.SoftmaxGate(num_gates=None if per_layer else 2)
    smear = dk.SmearExperts(adapters(), gate, "by_gate", per_layer=per_layer)
    v = numbers((BATCH, *inner, 2, 7), seed=1)
    filled(smear, (X, v))
    kernel = numpy(smear.gate.trainable_weights[0]).reshape(7, 2, N)
    seen = v.mean(axis=tuple(range(1, 1 + len(inner))))
    wanted = softmax(np.einsum("bgf,fgn->bgn", seen, kernel))
    assert_close(smear.expert_weights(X, v), wanted, rtol=1e-5)
    if not per_layer:
        merged = [merged_by_hand(smear.experts, wanted[:, g], X) for g in range(2)]
        assert_close(smear(X, v), np.stack(merged, axis=1), **CLOSE)
        # Inputs of a gate move that gate alone.
        v[..., 1, :] += 3.0
        assert_close(numpy(smear(X, v))[:, 0], merged[0], **CLOSE)
        assert np.abs(numpy(smear(X, v))[:, 1] - merged[1]).min() > 1e-3


@pytest.mark.parametrize("by_gate", [False, True])
def test_routing_inputs_have_the_mask_of_the_inputs_and_their_own(by_gate):
    gate, per_example = dk.SoftmaxGate(num_gates=2), "by_gate" if by_gate else True
    smear = dk.SmearExperts(adapters(), gate, per_example)
    v = numbers((BATCH, 4, *[2] * by_gate, 7), seed=1)
    filled(smear, (X, v))
    own, kept = np.arange(4) < np.array([[4], [2], [3]]), np.array([True, True, False])
    means = [row[mask].mean(axis=0) for row, mask in zip(v, own, strict=True)]
    wanted = numpy(smear(X, np.stack(means)))
    v[~own] = 37.0
    found = numpy(smear(X, v, mask=kept, routing_inputs_mask=own))
    assert_close(found[kept], wanted[kept], **CLOSE)
    assert_close(smear(X, v, routing_inputs_mask=own), wanted, **CLOSE)


@pytest.mark.parametrize("per_layer", [False, True], ids=["gates", "layers"])
@pytest.mark.parametrize("per_example", [False, True])
@any_rank
def test_each_gate_merges_an_expert_and_each_layer_may_have_a_gate(
    x, per_example, per_layer
):
    gate = dk.SoftmaxGate(num_gates=None if per_layer else 2)
    smear = dk.SmearExperts(adapters(), gate, per_example, per_layer=per_layer)
    weights = numpy(filled(smear, x).expert_weights(x if per_example else None))
    assert weights.shape == (*[BATCH] * per_example, 2, N)
    weights = np.broadcast_to(weights, (BATCH, 2, N))
    if per_layer:
        expected = merged_by_hand(smear.experts, weights, x)
    else:
        merged = [merged_by_hand(smear.experts, weights[:, g], x) for g in range(2)]
        expected = np.stack(merged, axis=1)
    assert_close(smear(x), expected, **CLOSE)


@any_rank
def test_adamix_is_the_mean_of_all_at_inference_and_draws_in_training(x):
    adamix = dk.SmearExperts(adapters(), dk.RandomGate(seed=0), False, per_layer=True)
    filled(adamix, x)
    expected = merged_by_hand(adamix.experts, np.full((BATCH, N), 1 / N), x)
    assert_close(adamix(x), expected, **CLOSE)
    # In training: down and up projections of experts drawn by themselves.
    eye = np.eye(N, dtype="float32")
    pairs = {
        (i, j): merged_by_hand(adamix.experts, np.stack([eye[[i, j]]] * BATCH), x)
        for i in range(N)
        for j in range(N)
    }
    drawn = set()
    for _ in range(12):
        found = numpy(adamix(x, training=True))
        drawn |= {p for p, each in pairs.items() if np.allclose(found, each, **CLOSE)}
    assert len(drawn) > 2
    assert any(i != j for i, j in drawn)


def test_gradients_reach_the_router_and_all_experts():
    smear = dk.SmearExperts(adapters(), dk.SoftmaxGate(normalize=True))
    filled(smear, SEQUENCE)
    gradients = weight_gradients(smear, lambda: ops.sum(smear(SEQUENCE) ** 2))
    assert len(gradients) == 4 + 5
    assert all(np.isfinite(found).all() and found.any() for found in gradients)
    assert all(found.reshape(N, -1).any(axis=1).all() for found in gradients[:4])


class OfMean(layers.Dense):
    """A dense layer on the mean of the positions that a mask leaves."""

    def call(self, x, mask=None):
        return super().call(layers.GlobalAveragePooling1D()(x, mask=mask))


@pytest.mark.parametrize("per_example", [False, True])
def test_merged_experts_that_pool_leave_padding_out(per_example):
    bank = dk.Experts(OfMean(DIM), N)
    smear = filled(dk.SmearExperts(bank, dk.SoftmaxGate(), per_example), SEQUENCE)
    mask = np.arange(6) < np.array([[6], [4], [1]])
    alone = [smear(SEQUENCE[i : i + 1, : mask[i].sum()])[0] for i in range(BATCH)]
    assert_close(smear(SEQUENCE, mask=mask), np.stack([*map(numpy, alone)]), **CLOSE)


def test_the_mean_over_a_long_sequence_does_not_overflow_in_half_precision():
    half = {"dtype": "float16"}
    smear = dk.SmearExperts(adapters(**half), dk.SoftmaxGate(), **half)
    x = ops.cast(np.full((1, 4096, DIM), 20.0), "float16")
    smear.build(x.shape)
    mask = ops.ones((1, 4096), "bool")
    for seen in (smear.gate_inputs(x), smear.gate_inputs(x, None, Padding(mask))):
        assert_close(seen.routing_inputs, 20.0)


def test_the_symbolic_shape_is_that_of_the_outputs():
    for gates, per_layer in ((None, False), (2, False), (None, True)):
        gate = dk.SoftmaxGate(num_gates=gates)
        layer = dk.SmearExperts(adapters(), gate, per_layer=per_layer)
        shape = layer(keras.Input((None, DIM))).shape
        assert shape == (None, *[2] * (gates is not None), None, DIM)
        assert layer(SEQUENCE).shape == (BATCH, *shape[1:-2], 6, DIM)


@pytest.mark.backends("jax", reason="Only JAX counts the operations.")
@pytest.mark.parametrize("num_experts", [4, 16])
def test_no_expert_is_evaluated_by_itself(num_experts):
    import jax

    dim, width, length, batch = 64, 16, 8, 4
    bank = dk.DenseExperts(num_experts, [width, dim], ["swish", None])
    smear, x = dk.SmearExperts(bank, dk.SoftmaxGate()), numbers((batch, length, dim))
    smear(x)
    values, state = (
        [v.value for v in each]
        for each in (smear.trainable_variables, smear.non_trainable_variables)
    )
    program = jax.jit(smear.stateless_call).lower(values, state, x).compile()
    cost = program.cost_analysis()["flops"]
    # Products of one adapter for each position, and sums of n adapters' parameters,
    # an addition and a multiplication each.
    expected = (4 * length + 4 * num_experts) * dim * width * batch
    assert 0.8 < cost / expected < 1.2


def every_kind():
    """Layers of all kinds of banks, gates and modes."""
    model = keras.Sequential([layers.Dense(2, "tanh"), layers.Dense(DIM)])
    convolutions = dk.Experts(layers.Conv1D(DIM, 2, padding="same"), 2)
    pool = {"routing_network": layers.GlobalMaxPooling1D()}
    for bank, gate, settings in [
        (adapters(), dk.SoftmaxGate(normalize=True), {}),
        (adapters(), dk.DSelectKGate(2), {"per_example": False}),
        (adapters(), dk.TopKGate(2, num_gates=2), {}),
        (adapters(), dk.SoftmaxGate(), {"per_layer": True}),
        (adapters(), dk.RandomGate(seed=1), {"per_example": False, "per_layer": True}),
        (dk.Experts(model, 2), dk.SoftmaxGate(), pool),
        (convolutions, dk.SoftmaxGate(), {}),
    ]:
        yield dk.SmearExperts(bank, gate, **settings)


@pytest.mark.traced
@pytest.mark.parametrize("routed", [False, True], ids=["alone", "routed"])
def test_trains_and_reloads_to_the_bit(routed, tmp_path):
    x, v = keras.Input((None, DIM)), keras.Input((7, 3))
    mixed = []
    for layer in every_kind():
        outputs = layer((x, v) if routed and layer.per_example else x)
        pools = layers.GlobalAveragePooling1D, layers.GlobalAveragePooling2D
        mixed.append(pools[len(outputs.shape) - 3]()(outputs))
    # Older Keras refuses an input that nothing uses.
    model = keras.Model([x, v] if routed else x, layers.Concatenate()(mixed))
    model.compile("sgd", "mse")
    inputs = [SEQUENCE, numbers((BATCH, 7, 3))] if routed else SEQUENCE
    y = numbers((BATCH, model.output_shape[-1]))
    train = partial(model.fit, inputs, y, verbose=0)
    assert all(changed(model.trainable_variables, train))
    assert_equal(reloaded(model, tmp_path)(inputs), model(inputs))


@pytest.mark.traced
@pytest.mark.backends("tensorflow", reason="XLA compiles the loop elsewhere.")
def test_a_loop_over_examples_is_not_compiled_with_xla():
    def smear(bank, **settings):
        return dk.SmearExperts(bank, dk.SoftmaxGate(), **settings)

    bank = dk.Experts(layers.Conv1D(2, 3), 3)
    assert smear(bank, per_example=False).supports_jit
    assert smear(adapters()).supports_jit
    model = model_of(smear(bank), 8, DIM)
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("sgd", "mse", jit_compile=True)
    x = numbers((5, 8, DIM))
    log = model.fit(x, np.ones((5, 6, 2)), batch_size=3, verbose=0)
    assert np.isfinite(log.history["loss"]).all()


def smear_experts(*bank, gate=dk.SoftmaxGate, **settings):
    return lambda: dk.SmearExperts(dk.Experts(*bank), gate(), **settings)(X)


MANY = dk.SoftmaxGate(num_gates=3)
test_what_cannot_be_merged_is_refused = refusals(
    (
        # A state that is there once the experts are built.
        smear_experts(keras.Sequential([layers.Dense(2), layers.Dropout(0.5)]), 2),
        "Experts with a state of their own",
    ),
    (
        smear_experts(layers.Dense(2), 2, per_layer=True),
        "per_layer=True needs `DenseExperts`",
    ),
    (
        dk.SmearExperts,
        r"see one input.*shared_input=False",
        (adapters(shared_input=False), dk.SoftmaxGate()),
    ),
    (
        partial(dk.SmearExperts, per_layer=True),
        r"num_gates=2 is needed.*num_gates=3",
        (adapters(), MANY),
    ),
)
