"""A mixture is the experts, weighted by the gate."""

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
    value_and_gradients,
)
from keras import layers, ops

import dselectk_keras as dk

X, V = numbers((2, 3)), numbers((2, 5), seed=1)


def spread(moe):
    """Give the gate of a built layer weights far from equal ones."""
    moe.gate.set_weights([numbers(w.shape, seed=2) for w in moe.gate.weights])


@pytest.mark.parametrize("num_gates", [None, 2])
@pytest.mark.parametrize("mode", ["static", "per_example", "routed"])
def test_equals_the_experts_combined_by_hand(mode, num_gates):
    gate = dk.DSelectKGate(2, num_gates=num_gates)
    moe = dk.MoE(dk.DenseExperts(4, [2]), gate, per_example=mode != "static")
    inputs = (X, V) if mode == "routed" else X
    moe(inputs)
    spread(moe)
    experts = numpy(moe.experts(X))
    routing = {"static": (), "per_example": (X,), "routed": (V,)}[mode]
    weights = numpy(gate.expert_weights(*routing))
    if mode == "static":
        weights = np.broadcast_to(weights, (2, *weights.shape))
    expected = np.einsum("b...n,bnh->b...h", weights, experts)
    assert_close(moe(inputs), expected, rtol=1e-5, atol=1e-6)
    shown = numpy(moe.expert_weights(None if mode == "static" else inputs))
    assert_equal(shown, gate.expert_weights(*routing))


def test_a_routing_network_makes_what_the_gate_looks_at():
    network = layers.Dense(4, "tanh")
    moe = dk.MoE(
        dk.DenseExperts(4, [2]), dk.SoftmaxGate(), True, routing_network=network
    )
    for inputs, seen in ((X, X), ((X, V[:, :3]), V[:, :3])):
        moe(inputs)
        spread(moe)
        assert moe.gate.routing_dim == 4
        kernel, bias = map(numpy, network.weights)
        weights = numpy(moe.gate.expert_weights(np.tanh(seen @ kernel + bias)))
        assert_close(moe.expert_weights(inputs), weights, rtol=1e-5, atol=1e-6)
        expected = np.einsum("bn,bnh->bh", weights, numpy(moe.experts(X)))
        assert_close(moe(inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("per_example", [True, False])
def test_mixes_what_experts_of_any_rank_give_and_routes_by_what_is_pooled(per_example):
    pool = layers.GlobalAveragePooling2D() if per_example else None
    bank, gate = dk.Experts(layers.Conv2D(2, 3), 3), dk.SoftmaxGate()
    moe = dk.MoE(bank, gate, per_example, routing_network=pool)
    x = numbers((2, 5, 5, 1))
    assert moe(x).shape == (2, 3, 3, 2)
    spread(moe)
    weights = numpy(gate.expert_weights(*[x.mean(axis=(1, 2))] * per_example))
    weights = np.broadcast_to(weights, (2, 3))
    expected = np.einsum("bn,bn...->b...", weights, numpy(bank(x)))
    assert_close(moe(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.traced
def test_the_routing_network_trains_with_its_state_and_reloads(tmp_path):
    network = keras.Sequential(
        [layers.Dense(4, "tanh"), layers.BatchNormalization(), layers.Dropout(0.2)]
    )
    inputs, v = keras.Input((3,)), keras.Input((5,))
    settings = {"per_example": True, "routing_network": network}
    moe = dk.MoE(dk.DenseExperts(4, [2]), dk.SoftmaxGate(), **settings)
    model = keras.Model([inputs, v], moe((inputs, v)))
    model.compile("sgd", "mse")
    y = np.ones((2, 2))
    assert all(changed(network.weights, lambda: model.fit([X, V], y, verbose=0)))
    assert_equal(reloaded(model, tmp_path)([X, V]), model([X, V]))


@pytest.mark.backend_independent
def test_training_is_passed_on_to_the_experts_of_a_list():
    moe = dk.MoE([layers.Dropout(0.9), layers.Dropout(0.9)], dk.SoftmaxGate())
    assert isinstance(moe.experts, dk.Experts)
    x = np.ones((4, 50), "float32")
    assert_close(moe(x), 1.0, rtol=1e-6)
    assert (numpy(moe(x, training=True)) == 0).mean() > 0.5


@pytest.mark.backend_independent
def test_an_error_in_a_call_says_nothing_of_keras_own_methods():
    moe = dk.MoE([layers.Dense(2), layers.Dense(3)], dk.SoftmaxGate())
    with pytest.raises(ValueError, match="have the same output shape") as error:
        moe(keras.Input((3,)))
    assert "compute_output_spec" not in str(error.value)


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 3)], ids=["examples", "tokens"])
def test_features_that_are_summed_before_the_mixture(shape, dispatch):
    x, settings = numbers(shape), {"per_example": True, "dispatch": dispatch}
    whole, summed = (
        dk.MoE(dk.DenseExperts(8, [5]), dk.TopKGate(2, num_gates=2), **settings, **more)
        for more in ({}, {"sum_features": True})
    )
    wanted = numpy(whole(x)).sum(axis=-1, keepdims=True)
    summed.build(x.shape)
    summed.set_weights(whole.get_weights())
    assert summed(x).shape == wanted.shape == (*shape[:-1], 2, 1)
    assert_close(summed(x), wanted, rtol=1e-5, atol=1e-5)


def side_by_side(choices, bank=None, num_gates=2, **settings):
    gate = dk.ChosenGate(initial_choices=choices, num_gates=num_gates)
    return dk.MoE(bank or dk.DenseExperts(4, [2]), gate, side_by_side=True, **settings)


def test_chosen_experts_of_any_rank_stand_side_by_side():
    moe = side_by_side([[2, 0], [1, -1]])
    found, experts = numpy(moe(X)), numpy(moe.experts(X))
    first = np.concatenate([experts[:, 2], experts[:, 0]], axis=1)
    second = np.concatenate([experts[:, 1], np.zeros((2, 2))], axis=1)
    assert_close(found, np.stack([first, second], axis=1), rtol=1e-6)
    kernel = numpy(moe.experts.weights[0])
    kernel[3] = np.nan  # Nobody has chosen this expert.
    moe.experts.weights[0].assign(kernel)
    assert_equal(moe(X), found)
    moe.gate.shares.assign(numbers((2, 2)))
    assert_equal(moe(X), found)
    model = keras.Sequential([layers.Dense(6), layers.Reshape((3, 2))])
    moe = side_by_side([[0, 1], [3, 2]], dk.Experts(model, 4))
    found, experts = numpy(moe(X)), numpy(moe.experts(X))
    assert found.shape == (2, 2, 3, 4)
    assert_close(found[:, 1, :, :2], experts[:, 3], rtol=1e-6)
    assert_close(found[:, 1, :, 2:], experts[:, 2], rtol=1e-6)


def test_the_experts_side_by_side_train_and_their_shares_do_not():
    moe = side_by_side([3, 1], dk.DenseExperts(4, [2], "linear"), num_gates=None)
    moe.build(X.shape)
    assert len(moe.trainable_weights) == len(moe.experts.trainable_weights)
    upstream = numbers((2, 4), seed=3)
    tensor, bias = ops.convert_to_tensor(upstream), moe.experts.weights[-1]
    _, (found,) = value_and_gradients(lambda: [ops.sum(moe(X) * tensor)], [bias])
    sums = upstream.sum(axis=0)
    assert_close(found, [[0, 0], sums[2:], [0, 0], sums[:2]], rtol=1e-5, atol=1e-6)


def test_shares_side_by_side_stay_frozen_when_the_model_is_not(tmp_path):
    model = model_of(side_by_side([[0, 1], [3, 2]], name="moe"), 3)
    number = len(model.trainable_variables)
    for trainable in (False, True):
        model.trainable = trainable
    assert len(model.trainable_variables) == number == 2
    model.compile("adam", "mse")
    model.fit(X, numbers((2, 2, 4)), verbose=0)
    again = reloaded(model, tmp_path)
    assert int(again.optimizer.iterations) == 1
    assert_equal(again.optimizer.variables, model.optimizer.variables)
    again.trainable = True
    assert len(again.trainable_variables) == number


@pytest.mark.backend_independent
def test_a_layer_with_experts_side_by_side_leaves_a_gate_that_it_is_given():
    gate = dk.ChosenGate(initial_choices=[0, 1], name="mine")
    layer = dk.MoE(dk.DenseExperts(4, [2]), gate, side_by_side=True)
    assert gate.trainable
    assert not gate.built
    assert layer.gate.name == "mine"
    mixing = dk.MoE(dk.DenseExperts(4, [2]), gate)
    mixing(X)
    layer = dk.MoE(mixing.experts, gate, side_by_side=True)
    layer(X)
    assert layer.gate is gate
    assert gate.shares.static.trainable


def moe(gate=dk.SoftmaxGate, **settings):
    return dk.MoE(dk.DenseExperts(4, [2]), gate(), **settings)


def read_unrouted():
    made = moe(per_example=True)
    made(X)
    made.expert_weights()


CHOSEN = partial(dk.ChosenGate, 2)
test_what_cannot_be_is_refused = refusals(
    (dk.MoE, "`experts` must be a bank", *((e, dk.SoftmaxGate()) for e in ("a", None))),
    (moe, r"`gate` must be a gate.*'softmax'", lambda: "softmax"),
    (
        moe,
        r"this gate is static.*Set per_example=True",
        {"routing_network": layers.Dense(2)},
    ),
    (moe(), "per_example=False and takes no routing", ((X, V),)),
    (
        moe(per_example=True),
        r"begin with the same axes.*\(2, 3, 1\)",
        ((X, numbers((2, 3, 1))),),
    ),
    (read_unrouted, "is per-example: pass the inputs"),
    (moe, "sum_features", {"sum_features": "yes"}),
    (moe, "side_by_side", {"gate": CHOSEN, "side_by_side": "yes"}),
    *(
        (moe, "side_by_side", {"gate": gate, "side_by_side": True})
        for gate in [
            dk.SoftmaxGate,
            partial(dk.DSelectKGate, 2),
            partial(CHOSEN, expert_dropout=0.5),
            partial(CHOSEN, weights_regularizer=dk.ImportanceRegularizer(0.1)),
        ]
    ),
)
