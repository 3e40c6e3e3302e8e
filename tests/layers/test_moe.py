"""A mixture is the experts, weighted by the gate."""

from functools import partial

import keras
import numpy as np
import pytest
from helpers import numbers, numpy, refusals, reloaded, value_and_gradients
from keras import layers, ops

from dselectk_keras import (
    ChosenGate,
    DenseExperts,
    DSelectKGate,
    Experts,
    ImportanceRegularizer,
    MoE,
    SoftmaxGate,
    TopKGate,
)

X, V = numbers((2, 3)), numbers((2, 5), seed=1)


def spread(moe):
    """Give the gate of a built layer weights far from equal ones."""
    moe.gate.set_weights([numbers(w.shape, seed=2) for w in moe.gate.weights])


@pytest.mark.parametrize("num_gates", [None, 2])
@pytest.mark.parametrize("mode", ["static", "per_example", "routed"])
def test_equals_the_experts_combined_by_hand(mode, num_gates):
    gate = DSelectKGate(2, num_gates=num_gates)
    moe = MoE(DenseExperts(4, [2]), gate, per_example=mode != "static")
    inputs = (X, V) if mode == "routed" else X
    moe(inputs)
    spread(moe)
    experts = numpy(moe.experts(X))
    routing = {"static": (), "per_example": (X,), "routed": (V,)}[mode]
    weights = numpy(gate.expert_weights(*routing))
    if mode == "static":
        weights = np.broadcast_to(weights, (2, *weights.shape))
    expected = np.einsum("b...n,bnh->b...h", weights, experts)
    np.testing.assert_allclose(numpy(moe(inputs)), expected, rtol=1e-5, atol=1e-6)
    shown = numpy(moe.expert_weights(None if mode == "static" else inputs))
    np.testing.assert_array_equal(shown, numpy(gate.expert_weights(*routing)))


def test_a_routing_network_makes_what_the_gate_looks_at():
    network = layers.Dense(4, "tanh")
    moe = MoE(DenseExperts(4, [2]), SoftmaxGate(), True, routing_network=network)
    for inputs, seen in ((X, X), ((X, V[:, :3]), V[:, :3])):
        moe(inputs)
        spread(moe)
        assert moe.gate.routing_dim == 4
        kernel, bias = map(numpy, network.weights)
        weights = numpy(moe.gate.expert_weights(np.tanh(seen @ kernel + bias)))
        found = numpy(moe.expert_weights(inputs))
        np.testing.assert_allclose(found, weights, rtol=1e-5, atol=1e-6)
        expected = np.einsum("bn,bnh->bh", weights, numpy(moe.experts(X)))
        np.testing.assert_allclose(numpy(moe(inputs)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("per_example", [True, False])
def test_mixes_what_experts_of_any_rank_give_and_routes_by_what_is_pooled(per_example):
    pool = layers.GlobalAveragePooling2D() if per_example else None
    bank, gate = Experts(layers.Conv2D(2, 3), 3), SoftmaxGate()
    moe = MoE(bank, gate, per_example, routing_network=pool)
    x = numbers((2, 5, 5, 1))
    assert moe(x).shape == (2, 3, 3, 2)
    spread(moe)
    weights = numpy(gate.expert_weights(*[x.mean(axis=(1, 2))] * per_example))
    weights = np.broadcast_to(weights, (2, 3))
    expected = np.einsum("bn,bn...->b...", weights, numpy(bank(x)))
    np.testing.assert_allclose(numpy(moe(x)), expected, rtol=1e-5, atol=1e-6)


def test_the_routing_network_trains_with_its_state_and_reloads(tmp_path):
    network = keras.Sequential(
        [layers.Dense(4, "tanh"), layers.BatchNormalization(), layers.Dropout(0.2)]
    )
    inputs, v = keras.Input((3,)), keras.Input((5,))
    settings = {"per_example": True, "routing_network": network}
    moe = MoE(DenseExperts(4, [2]), SoftmaxGate(), **settings)
    model = keras.Model([inputs, v], moe((inputs, v)))
    model.compile("sgd", "mse")
    before = [numpy(weight) for weight in network.weights]
    model.fit([X, V], np.ones((2, 2)), verbose=0)
    changed = [
        (numpy(w) != old).any() for w, old in zip(network.weights, before, strict=True)
    ]
    assert all(changed)
    loaded = reloaded(model, tmp_path)
    np.testing.assert_array_equal(numpy(loaded([X, V])), numpy(model([X, V])))


def test_gradients_reach_experts_gate_and_both_inputs():
    moe = MoE(DenseExperts(4, [2], "tanh"), SoftmaxGate(), per_example=True)
    inputs = [keras.Variable(X), keras.Variable(V)]
    moe((X, V))
    variables = [*moe.trainable_variables, *inputs]
    _, gradients = value_and_gradients(
        lambda: [ops.sum(moe(tuple(map(ops.convert_to_tensor, inputs))) ** 2)],
        variables,
    )
    assert len(gradients) == 5
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_the_penalties_of_the_gate_are_losses_in_training_only():
    moe = MoE(DenseExperts(4, [2]), DSelectKGate(2, entropy_reg=0.5))
    moe(X)
    assert moe.losses == []
    moe(X, training=True)
    expected = moe.gate.report()["penalties"]["entropy"]
    np.testing.assert_allclose(numpy(moe.losses[0]), numpy(expected), rtol=1e-6)


def test_training_is_passed_on_to_the_experts_of_a_list():
    moe = MoE([layers.Dropout(0.9), layers.Dropout(0.9)], SoftmaxGate())
    assert isinstance(moe.experts, Experts)
    x = np.ones((4, 50), "float32")
    np.testing.assert_allclose(numpy(moe(x)), 1.0, rtol=1e-6)
    assert (numpy(moe(x, training=True)) == 0).mean() > 0.5


@pytest.mark.traced
def test_works_inside_a_functional_model_with_routing_inputs_of_its_own():
    x, v = keras.Input((3,)), keras.Input((5,))
    hidden = layers.Dense(3)(x)
    moe = MoE(DenseExperts(4, [2]), TopKGate(2), per_example=True)
    model = keras.Model([x, v], layers.Dense(1)(moe((hidden, v))))
    model.compile("sgd", "mse")
    before = [numpy(weight) for weight in moe.trainable_variables]
    model.fit([X, V], np.ones((2, 1)), verbose=0)
    after = [numpy(weight) for weight in moe.trainable_variables]
    assert all((a != b).any() for a, b in zip(before, after, strict=True))


@pytest.mark.traced
def test_works_inside_a_subclassed_model():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.moe = MoE(DenseExperts(4, [2]), DSelectKGate(2, entropy_reg=0.1))
            self.head = layers.Dense(1)

        def call(self, inputs, training=None):
            return self.head(self.moe(inputs, training=training))

    model = Model()
    model.compile("sgd", "mse")
    log = model.fit(X, np.ones((2, 1)), epochs=2, verbose=0)
    assert np.isfinite(log.history["loss"]).all()
    assert int(model.moe.gate.step) == 2


def test_an_error_in_a_call_says_nothing_of_keras_own_methods():
    inputs = keras.Input((3,))
    moe = MoE([layers.Dense(2), layers.Dense(3)], SoftmaxGate())
    with pytest.raises(ValueError, match="have the same output shape") as error:
        moe(inputs)
    assert "compute_output_spec" not in str(error.value)


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 3)], ids=["examples", "tokens"])
def test_features_that_are_summed_before_the_mixture(shape, dispatch):
    x = numbers(shape)
    settings = {"per_example": True, "dispatch": dispatch}
    gate = partial(TopKGate, 2, num_gates=2)
    whole = MoE(DenseExperts(8, [5]), gate(), **settings)
    summed = MoE(DenseExperts(8, [5]), gate(), sum_features=True, **settings)
    mixture = whole(x)
    summed.build(x.shape)
    summed.set_weights(whole.get_weights())
    assert summed(x).shape == (*shape[:-1], 2, 1)
    wanted = numpy(mixture).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(numpy(summed(x)), wanted, rtol=1e-5, atol=1e-5)


def side_by_side(choices, bank=None, num_gates=2, **settings):
    gate = ChosenGate(initial_choices=choices, num_gates=num_gates)
    return MoE(bank or DenseExperts(4, [2]), gate, side_by_side=True, **settings)


def test_chosen_experts_of_any_rank_stand_side_by_side():
    moe = side_by_side([[2, 0], [1, -1]])
    found, experts = numpy(moe(X)), numpy(moe.experts(X))
    assert found.shape == (2, 2, 4)
    np.testing.assert_allclose(found[:, 0, :2], experts[:, 2], rtol=1e-6)
    np.testing.assert_allclose(found[:, 0, 2:], experts[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found[:, 1, :2], experts[:, 1], rtol=1e-6)
    np.testing.assert_array_equal(found[:, 1, 2:], 0.0)
    kernel = numpy(moe.experts.weights[0]).copy()
    kernel[3] = np.nan  # Nobody has chosen this expert.
    moe.experts.weights[0].assign(kernel)
    np.testing.assert_array_equal(numpy(moe(X)), found)
    moe.gate.shares.assign(numbers((2, 2)))
    np.testing.assert_array_equal(numpy(moe(X)), found)
    model = keras.Sequential([layers.Dense(6), layers.Reshape((3, 2))])
    moe = side_by_side([[0, 1], [3, 2]], Experts(model, 4))
    found, experts = numpy(moe(X)), numpy(moe.experts(X))
    assert found.shape == (2, 2, 3, 4)
    np.testing.assert_allclose(found[:, 1, :, :2], experts[:, 3], rtol=1e-6)
    np.testing.assert_allclose(found[:, 1, :, 2:], experts[:, 2], rtol=1e-6)


def test_the_experts_side_by_side_train_and_their_shares_do_not():
    moe = side_by_side([3, 1], DenseExperts(4, [2], "linear"), num_gates=None)
    moe.build(X.shape)
    assert len(moe.trainable_weights) == len(moe.experts.trainable_weights)
    upstream = numbers((2, 4), seed=3)
    tensor, bias = ops.convert_to_tensor(upstream), moe.experts.weights[-1]
    _, (found,) = value_and_gradients(lambda: [ops.sum(moe(X) * tensor)], [bias])
    sums = upstream.sum(axis=0)
    expected = [[0, 0], sums[2:], [0, 0], sums[:2]]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def moe(gate=SoftmaxGate, **settings):
    return MoE(DenseExperts(4, [2]), gate(), **settings)


def built_moe(**settings):
    made = moe(**settings)
    made(X)
    return made


test_what_cannot_be_is_refused = refusals(
    (lambda: MoE("dense", SoftmaxGate()), "`experts` must be a bank"),
    (lambda: MoE(None, SoftmaxGate()), "`experts` must be a bank"),
    (lambda: moe(lambda: "softmax"), r"`gate` must be a gate.*'softmax'"),
    (
        lambda: moe(routing_network=layers.Dense(2)),
        r"this gate is static.*Set per_example=True",
    ),
    (lambda: moe()((X, V)), "per_example=False and takes no routing"),
    (
        lambda: moe(per_example=True)((X, numbers((2, 3, 1)))),
        r"begin with the same axes.*\(2, 3, 1\)",
    ),
    (
        lambda: built_moe(per_example=True).expert_weights(),
        "is per-example: pass the inputs",
    ),
    (lambda: moe(sum_features="yes"), "sum_features"),
    (lambda: moe(lambda: ChosenGate(2), side_by_side="yes"), "side_by_side"),
    *(
        (lambda gate=gate: moe(gate, side_by_side=True), "side_by_side")
        for gate in [
            SoftmaxGate,
            lambda: DSelectKGate(2),
            lambda: ChosenGate(2, expert_dropout=0.5),
            lambda: ChosenGate(2, weights_regularizer=ImportanceRegularizer(0.1)),
        ]
    ),
)
