"""Numbers in padding change no output, no penalty and no gradient."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import differentiated, numbers, numpy, weight_gradients
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras.gates.record import recording

X = numbers((3, 4, 5))
# The last sequence is padding alone.
MASK = np.array([[1, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]], "bool")
REGULARIZERS = {
    "importance": lambda: dk.ImportanceRegularizer(0.5),
    "similarity": lambda: dk.SampleSimilarityRegularizer(0.5, 0.7),
}
GATES = {
    "softmax": partial(dk.SoftmaxGate, z_reg=0.3),
    "top-k": partial(dk.TopKGate, 2, z_reg=0.3),
    "switch": dk.SwitchGate,
    "dselect-k": partial(dk.DSelectKGate, 2, entropy_reg=0.3, reduction="mean"),
    "attentive": partial(dk.baselines.AttentiveGate, 4),
}
ROUTING = {"tokens": lambda: None, "sequences": layers.GlobalAveragePooling1D}


def training(layer):
    """A function of inputs, compiled once.

    It gives a loss with penalties, the outputs and the penalties; and their gradients.
    """
    given, inputs = keras.Variable(X, trainable=False), keras.Variable(X)

    def compute():
        x = ops.convert_to_tensor(given)
        # NaN has no part in the gradient, whatever its values are.
        x = ops.where(ops.isnan(x), x, ops.convert_to_tensor(inputs))
        y = layer(x, mask=MASK, training=True)
        y = ops.where(MASK[..., None], y, 0.0)
        return [ops.sum(y * y) + sum(layer.losses), y, *layer.losses]

    variables = [*layer.trainable_variables, inputs]
    run = differentiated(compute, variables, [*layer.non_trainable_variables, given])

    def train(x):
        given.assign(x)
        inputs.assign(np.nan_to_num(x))
        return run()

    return train


def assert_padding_is_not_read(layer):
    layer.build(X.shape)
    results, train = [], training(layer)
    for padding in (0.0, 37.0, np.nan):
        keras.utils.set_random_seed(0)
        results.append(train(np.where(MASK[..., None], X, np.float32(padding))))
    for result in results:
        assert all(np.isfinite(each).all() for each in (*result[0], *result[1]))
        assert_close(result, results[0], rtol=1e-5, atol=1e-5)
        assert_equal(result[1][-1][~MASK], 0.0)


@pytest.mark.parametrize("routing", ROUTING)
@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("gate", GATES)
def test_padding_is_not_read(gate, regularizer, routing):
    made = GATES[gate](weights_regularizer=REGULARIZERS[regularizer]())
    network, bank = ROUTING[routing](), dk.DenseExperts(3, [4, 3], ["tanh", None])
    make = dk.baselines.AttentiveMoE if gate == "attentive" else dk.MoE
    layer = make(bank, made, per_example=True, routing_network=network)
    assert_padding_is_not_read(layer)


@pytest.mark.parametrize("per_example", [False, True])
def test_merging_and_static_gates_do_not_read_padding(per_example):
    bank = dk.DenseExperts(3, [3], activation=None)
    assert_padding_is_not_read(dk.SmearExperts(bank, dk.SoftmaxGate(), per_example))
    assert_padding_is_not_read(dk.MoE(bank, dk.DSelectKGate(2)))


@pytest.mark.traced
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("pools", [False, True], ids=["tokens", "sequences"])
def test_a_mask_of_the_routing_inputs_alone_leaves_padding_out(pools, compiled):
    network = layers.GlobalAveragePooling1D() if pools else None
    gate = dk.SoftmaxGate(z_reg=0.3, weights_regularizer=dk.ImportanceRegularizer(0.5))
    layer = dk.MoE(dk.DenseExperts(3, [3]), gate, True, network)
    ids = np.where(MASK, 1 + np.arange(12).reshape(MASK.shape) % 5, 0)
    inputs = keras.Input((4, 5)), keras.Input((4,), dtype="int32")
    embedding = layers.Embedding(6, 2, mask_zero=True)
    model = keras.Model(inputs, layer(inputs[0], embedding(inputs[1])))
    model.compile("sgd", "mse", run_eagerly=not compiled)
    losses = []
    # The law for penalties: other numbers where ids are 0, and a row less.
    for rows in (3, 2):
        layer(X[:rows], embedding(ids[:rows]), training=True)
        losses.append(list(layer.losses))
    assert_close(*losses, rtol=1e-5)
    y = model.predict([X, ids], verbose=0)
    left_out = np.repeat(~MASK.any(axis=1)[:, None], 4, 1) if pools else ~MASK
    assert_equal(y[left_out], 0.0)
    assert (y[~left_out] != 0).any(axis=-1).all()


def test_a_mask_of_examples_is_one_of_all_their_tokens():
    kept, results = np.array([True, False, True]), []
    bank, gate = dk.DenseExperts(3, [3]), partial(dk.SwitchGate, "random_normal")
    whole = np.where(kept[:, None, None], X, np.float32(37.0))
    tokens = np.repeat(kept[:, None], 4, axis=1)
    for x, mask in ((X[kept], None), (whole, tokens), (whole, kept)):
        layer = dk.MoE(bank, gate(z_reg=0.3), per_example=True, dispatch=1.0)
        layer.build(x.shape)
        if results:
            layer.set_weights(results[0][0].get_weights())
        results.append((layer, x, mask))
    for layer, x, mask in results:
        y = numpy(layer(x, mask=mask, training=True))
        layer.y = y if mask is None else y[kept]
    wanted, *others = (each[0] for each in results)
    assert int(wanted.num_dropped) > 0
    assert_equal(layer.compute_mask(X, kept), tokens)
    for layer in others:
        assert_close(layer.y, wanted.y, rtol=1e-5)
        assert_close(layer.losses, wanted.losses, rtol=1e-5)
        assert int(layer.num_dropped) == int(wanted.num_dropped)


@pytest.mark.parametrize(
    ("mask", "of_routing"),
    [(MASK, None), (MASK.any(axis=1), None), (MASK, np.array([True, False, True]))],
)
def test_routing_inputs_of_positions_that_do_not_count_are_not_read(mask, of_routing):
    own, masks = numbers((3, 4, 2), seed=5), {"routing_inputs_mask": of_routing}
    layer = dk.MoE(dk.DenseExperts(3, [3]), dk.SoftmaxGate(z_reg=0.3), True)
    layer.build(X.shape, own.shape)
    padding = np.broadcast_to(~mask.reshape(3, -1, 1), own.shape).copy()
    if of_routing is not None:
        padding[~of_routing] = True
    found = []
    for spoiled in (0.0, np.nan):
        v = np.where(padding, np.float32(spoiled), own)

        def compute(v=v):
            y = layer(X, v, inputs_mask=mask, **masks, training=True)
            return ops.sum(y * y) + sum(layer.losses)

        found.append(weight_gradients(layer, compute))
    assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)


class Flat(layers.Flatten):
    """Sees padding, without a warning."""

    def compute_mask(self, inputs, previous_mask=None):
        return None


@pytest.mark.parametrize("pools", [False, True], ids=["tokens", "sequences"])
def test_the_weights_that_a_layer_tells_are_those_of_its_call(pools):
    embedding = layers.Embedding(6, 5, "random_normal", mask_zero=True)
    x = embedding(np.where(MASK, 3, 0))
    gate, network = dk.SoftmaxGate("random_normal"), Flat() if pools else None
    layer = dk.MoE(dk.DenseExperts(3, [3]), gate, True, network)
    layer(x)
    calls = []
    with recording(calls.append):
        layer(x)
    routing = calls[0].routing
    told = numpy(layer.expert_weights(x)).reshape(-1, 3)
    valid = numpy(routing.valid)[:, None]
    assert_equal(routing.weights, np.where(valid, told, 0.0))


@pytest.mark.parametrize("compiled", [False, True])
def test_experts_and_routing_networks_that_pool_stay_finite(compiled):
    bank = dk.Experts(layers.GlobalAveragePooling1D(), 2)
    pool = layers.GlobalAveragePooling1D()
    moe = dk.MoE(bank, dk.SoftmaxGate(), per_example=True, routing_network=pool)
    inputs = keras.Input((4, 5)), keras.Input((4,), dtype="bool")
    model = keras.Model(inputs, layers.Dense(1)(moe(inputs[0], mask=inputs[1])))
    model.compile("sgd", "mse", run_eagerly=not compiled)
    x = np.where(MASK[..., None], X, np.nan)
    loss = model.train_on_batch([x, MASK], np.ones((3, 1), "float32"))
    assert np.isfinite(loss).all()
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
