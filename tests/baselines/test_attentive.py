"""The attentive gate compares the inputs with what the experts make of them."""

from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed
from gate_cases import Case
from helpers import numbers, numpy, refusals, reloaded, softmax, spread
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras.baselines.attentive import AttentiveInputs

CASES = [
    Case(
        "attentive",
        partial(dk.baselines.AttentiveGate, 2),
        looks=("hidden",),
        dense=True,
    )
]
N, BATCH, DIM, HIDDEN, UNITS = 3, 4, 5, 6, 2
X = numbers((BATCH, DIM))
H = numbers((BATCH, N, HIDDEN), seed=1)
EXPERTS = numbers((BATCH, N, 2), seed=2)


def attentive(num_gates=None, hidden=(HIDDEN,), **settings):
    gate = dk.baselines.AttentiveGate(UNITS, num_gates=num_gates, **settings)
    gate.build((None, N), (None, DIM), (None, N, *hidden))
    return spread(gate)


def attention(x, hidden, query, key):
    """softmax(Q K' / sqrt(h)), one example at a time."""
    pairs = zip(x @ query, hidden @ key, strict=True)
    return np.stack([softmax(q @ k.T / np.sqrt(query.shape[1])) for q, k in pairs])


def test_weights_by_hand():
    gate = dk.baselines.AttentiveGate(4)
    gate.build((None, 2), (None, 1), (None, 2, 1))
    gate.set_weights([np.ones((1, 4)), np.ones((1, 1, 4))])
    # Q K' = 4 x h, over sqrt(4): the logits are 0 and 2 x log 3 / 2.
    hidden = np.array([[[0.0], [np.log(3.0) / 2]]] * 2, "float32")
    inputs = AttentiveInputs([[1.0], [-1.0]], hidden=hidden)
    weights = numpy(gate.expert_weights(inputs))
    assert_close(weights, [[0.25, 0.75], [0.75, 0.25]], rtol=1e-5)


def test_equals_attention_with_the_same_kernels():
    gate = attentive()
    query, key = map(numpy, gate.trainable_weights)
    expected = attention(X, H, query, key[0])
    assert_close(gate.expert_weights(AttentiveInputs(X, hidden=H)), expected, rtol=1e-4)
    mixed = np.einsum("bn,bnh->bh", expected, EXPERTS)
    assert_close(gate(EXPERTS, X, hidden=H), mixed, rtol=1e-4, atol=1e-6)
    # Hidden outputs of any rank are flattened.
    inputs = AttentiveInputs(X, hidden=H.reshape(BATCH, N, 3, 2))
    assert_close(attentive(hidden=(3, 2)).expert_weights(inputs), expected, rtol=1e-4)


@pytest.mark.parametrize("own_inputs", [False, True])
def test_several_gates_are_the_gates_side_by_side(own_inputs):
    gate = attentive(num_gates=2)
    query, key = map(numpy, gate.trainable_weights)
    x = numbers((BATCH, 2, DIM)) if own_inputs else X
    weights = numpy(gate.expert_weights(AttentiveInputs(x, hidden=H)))
    assert weights.shape == (BATCH, 2, N)
    single = attentive()
    for g in range(2):
        single.set_weights([query.reshape(DIM, 2, UNITS)[:, g], key[[g]]])
        inputs = AttentiveInputs(x[:, g] if own_inputs else x, hidden=H)
        assert_close(weights[:, g], single.expert_weights(inputs), rtol=1e-4)


def test_gradients_reach_both_kernels_the_inputs_and_the_experts():
    bank, gate = (
        dk.DenseExperts(N, [HIDDEN, 2], "tanh"),
        dk.baselines.AttentiveGate(UNITS),
    )
    moe, x = dk.baselines.AttentiveMoE(bank, gate, True), keras.Variable(X)
    moe(X)
    # With the mixture out of the way: the weights alone, as they depend on all.
    variables = [*gate.trainable_variables, *bank.trainable_variables[:2], x]
    _, gradients = helpers.value_and_gradients(
        lambda: [ops.sum(moe.expert_weights(ops.convert_to_tensor(x)) ** 2)], variables
    )
    assert len(gradients) == 5
    assert all(np.isfinite(found).all() and found.any() for found in gradients)
    assert gradients[2].any(axis=(1, 2)).all()


def sequential():
    """An expert whose hidden output, of a convolution, is flattened."""
    inputs = layers.Reshape((DIM, 1)), layers.Conv1D(3, 2, activation="tanh")
    return keras.Sequential([*inputs, layers.Flatten(), layers.Dense(2)])


def functional():
    inputs = keras.Input((DIM,))
    return keras.Model(inputs, layers.Dense(2)(layers.Dense(HIDDEN, "tanh")(inputs)))


def hidden_by_hand(bank, x):
    """The inputs of the experts' last layers."""
    shared = bank.shared_input
    if isinstance(bank, dk.DenseExperts):
        kernel, bias = (numpy(w) for w in bank.weights[:2])
        product = "bd,ndh->bnh" if shared else "bnd,ndh->bnh"
        return np.tanh(np.einsum(product, x, kernel) + bias)
    outputs = []
    for i, expert in enumerate(bank.experts):
        y = x if shared else x[:, i]
        for layer in expert.layers[:-1]:
            y = y if isinstance(layer, layers.InputLayer) else layer(y)
        outputs.append(numpy(y))
    return np.stack(outputs, axis=1)


BANKS = {
    "dense": lambda **kwargs: dk.DenseExperts(N, [HIDDEN, 2], "tanh", **kwargs),
    "sequential": lambda **kwargs: dk.Experts(sequential(), N, **kwargs),
    "functional": lambda **kwargs: dk.Experts(functional(), N, **kwargs),
}


@pytest.mark.parametrize("shared_input", [True, False])
@pytest.mark.parametrize("kind", BANKS)
def test_moe_hands_over_inputs_and_hidden_outputs(kind, shared_input):
    bank = BANKS[kind](shared_input=shared_input)
    x = X if shared_input else numbers((BATCH, N, DIM))
    # Without an axis for the experts, which the gate cannot have.
    network = layers.Dense(4) if shared_input else layers.Flatten()
    moe = dk.baselines.AttentiveMoE(
        bank, dk.baselines.AttentiveGate(UNITS), True, routing_network=network
    )
    mixed = moe(x)
    hidden = hidden_by_hand(bank, x)
    query, key = map(numpy, moe.gate.trainable_weights)
    expected = attention(numpy(network(x)), hidden.reshape(BATCH, N, -1), query, key[0])
    assert_close(moe.expert_weights(x), expected, rtol=1e-4)
    by_hand = np.einsum("bn,bnh->bh", expected, numpy(bank(x)))
    assert_close(mixed, by_hand, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sequential"])
def test_hidden_outputs_are_dropped_in_training(kind):
    bank = dk.DenseExperts(2, [500, 1], None, dropout=0.5)
    if kind == "sequential":
        stack = [layers.Dense(500), layers.BatchNormalization(), layers.Dropout(0.5)]
        bank = dk.Experts(keras.Sequential([*stack, layers.Dense(1)]), 2)
    moe = dk.baselines.AttentiveMoE(bank, dk.baselines.AttentiveGate(UNITS), True)
    moe.build(X.shape)
    seen = []
    moe.gate.route = lambda inputs, training: (
        seen.append(numpy(inputs.hidden))
        or type(moe.gate).route(moe.gate, inputs, training)
    )
    moe(X), moe(X, training=True)
    at_inference, in_training = ((hidden == 0).mean() for hidden in seen)
    assert at_inference == 0
    assert 0.4 < in_training < 0.6
    for expert in bank.experts if kind == "sequential" else ():
        assert numpy(expert.layers[1].moving_mean).any()


def test_a_regularizer_sees_the_inputs_without_the_hidden_outputs():
    regularizer = dk.SampleSimilarityRegularizer(1.0, 1.0)
    gate = attentive(weights_regularizer=regularizer)
    gate(EXPERTS, X, hidden=H, training=True)
    weights = numpy(gate.expert_weights(AttentiveInputs(X, hidden=H)))
    expected = regularizer((weights, X))
    assert_close(gate.losses[0], expected, rtol=1e-5)


def multitask():
    """A model with two attentive layers, the first with two gates."""
    inputs, outputs = keras.Input((DIM,)), []
    model = keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(2)])
    dropped = dk.baselines.AttentiveGate(UNITS, expert_dropout=0.2, seed=1)
    for bank, gate in [
        (BANKS["dense"](), dk.baselines.AttentiveGate(UNITS, num_gates=2)),
        (dk.Experts(model, N), dropped),
    ]:
        network = layers.Dense(4, "tanh")
        moe = dk.baselines.AttentiveMoE(bank, gate, True, routing_network=network)
        outputs.append(layers.Flatten()(moe(inputs)))
    return keras.Model(inputs, layers.Concatenate()(outputs))


def test_trains_under_a_recorder_and_reloads_to_the_bit(tmp_path):
    model = multitask()
    model.compile("sgd", "mse")
    recorder = dk.GateRecorder(every=1, unit="epochs", probe=X)
    settings = {"verbose": 0, "callbacks": [recorder]}
    train = partial(model.fit, X, numbers((BATCH, 6)), **settings)
    assert all(changed(model.trainable_variables, train))
    mmoe, moe = (layer for layer in model.layers if hasattr(layer, "gate"))
    for layer, gates in ((mmoe, 2), (moe, 1)):
        recorded = recorder.history[layer.name]["weights"]
        assert recorded.shape == (2, gates, N)
        shown = numpy(layer.expert_weights(X)).mean(axis=0).reshape(gates, N)
        assert_close(recorded[-1], shown, rtol=1e-4)
    loaded = reloaded(model, tmp_path)
    assert_equal(loaded(X), model(X))
    assert loaded.get_layer(moe.name).gate.get_config() == moe.gate.get_config()


def test_with_another_gate_it_is_a_mixture_and_as_an_architecture_one_per_task():
    bank = dk.DenseExperts(N, [HIDDEN, 2])
    moe, plain = (
        make(bank, dk.SoftmaxGate(), True)
        for make in (dk.baselines.AttentiveMoE, dk.MoE)
    )
    moe(X), plain(X)
    plain.gate.set_weights(moe.gate.get_weights())
    assert_equal(moe(X), plain(X))
    assert_equal(moe.expert_weights(X), plain.expert_weights(X))
    parts = dk.DenseExperts(N, [HIDDEN, 2]), dk.baselines.AttentiveGate(UNITS)
    model = dk.build_multitask_model(DIM, 2, "attentive", *parts, True, stacked=True)
    assert model(X).shape == (BATCH, 2)
    assert model.get_layer("attentive").gate.num_gates == 2


def of_units(make, *arguments, **settings):
    return make(*arguments, dk.baselines.AttentiveGate(UNITS), **settings)


test_what_cannot_be_is_refused = refusals(
    (
        lambda bank: of_units(dk.baselines.AttentiveMoE, bank, per_example=True)(X),
        r"name=flat.*Use `DenseExperts` of two",
        dk.DenseExperts(N, [2], name="flat"),
        dk.Experts(layers.Dense(2), N, name="flat"),
        dk.DenseExperts(N, [3, 2], activity_regularizer="l2", name="flat"),
    ),
    (
        lambda make: of_units(make, BANKS["dense"]())(X),
        r"`AttentiveMoE`.*for hidden: None",
        partial(dk.MoE, per_example=True),
        partial(dk.CGC, per_example=True, tasks=2),
        dk.SmearExperts,
    ),
    (
        lambda: of_units(dk.baselines.AttentiveMoE, BANKS["dense"]()),
        r"cannot be static.*Set per_example=True",
    ),
    (
        lambda hidden: attentive()(EXPERTS, X, hidden=hidden),
        r"must have the shape \(batch, 3, \.\.\.\)",
        *(numbers((BATCH, HIDDEN)), numbers((BATCH, N + 1, HIDDEN))),
    ),
    (attentive().expert_weights, r"`hidden` must have .*Received: None", X),
    (dk.baselines.AttentiveGate, "`units` must be a positive integer", 0),
)
