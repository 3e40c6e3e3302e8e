"""Tasks mix shared experts and experts of their own, on one level or several."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numbers, numpy, refusals, value_and_gradients, weight_gradients
from keras import layers, ops

from dselectk_keras import CGC, DenseExperts, DSelectKGate, Experts, MMoE, SoftmaxGate
from dselectk_keras.gates.record import recording

X, V = numbers((2, 3)), numbers((2, 5), seed=1)
# Inputs of two tasks, and of the shared experts.
STACKED = numbers((2, 3, 4), seed=2)


def cgc(gate=SoftmaxGate, tasks=2, num_task_experts=2, shared=False, **settings):
    """A layer with three shared experts of two units."""
    bank = DenseExperts(3, [2], "tanh", shared_input=settings.pop("shared_input", True))
    settings = {"shared_gate": gate() if shared else None, **settings}
    return CGC(bank, gate(), tasks, num_task_experts, **settings)


def test_the_experts_of_tasks_are_penalized_as_the_shared_ones():
    l2 = keras.regularizers.L2(1.0)
    for bank in (
        DenseExperts(2, [4], activity_regularizer=l2),
        Experts(layers.Dense(4), 2, activity_regularizer=l2),
    ):
        layer = CGC(bank, SoftmaxGate(), 2)
        layer(X, training=True)
        parts = layer.experts, layer.task_experts
        wanted = [(numpy(part(X)) ** 2).sum() / len(X) for part in parts]
        layer(X, training=True)
        assert_close(layer.losses, wanted, rtol=1e-5)


def filled(layer, inputs):
    """The layer with gates that are far from uniform."""
    layer(inputs)
    for gate in (layer.gate, layer.shared_gate):
        if gate is not None:
            gate.set_weights([numbers(w.shape, seed=3) for w in gate.weights])
    return layer


def mixed_by_hand(shared, own, weights, for_all=None):
    """The sums over experts, one by one: (batch, tasks [+ 1], features)."""
    n, num_tasks = shared.shape[1], weights.shape[1]
    s = own.shape[1] // num_tasks
    mixtures = []
    for t in range(num_tasks):
        mixture = sum(weights[:, t, i, None] * shared[:, i] for i in range(n))
        for j in range(s):
            mixture = mixture + weights[:, t, n + j, None] * own[:, t * s + j]
        mixtures.append(mixture)
    if for_all is not None:
        every = np.concatenate([shared, own], axis=1)
        mixtures.append(np.einsum("bn,bnh->bh", for_all, every))
    return np.stack(mixtures, axis=1)


@pytest.mark.parametrize("shared", [False, True], ids=["last", "below"])
@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize("mode", ["static", "per_example", "routed"])
def test_equals_the_experts_combined_by_hand(mode, tasks, shared):
    inputs = (X, V) if mode == "routed" else X
    layer = cgc(tasks=tasks, shared=shared, per_example=mode != "static")
    filled(layer, inputs)
    looks_at = {"static": (), "per_example": (X,), "routed": (V,)}[mode]
    weights = numpy(layer.gate.expert_weights(*looks_at))
    weights = np.broadcast_to(weights, (2, tasks, 5))
    for_all = None
    if shared:
        for_all = numpy(layer.shared_gate.expert_weights(*looks_at))
        for_all = np.broadcast_to(for_all, (2, 3 + 2 * tasks))
    experts = numpy(layer.experts(X)), numpy(layer.task_experts(X))
    expected = mixed_by_hand(*experts, weights, for_all)
    assert_close(layer(inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", [False, True], ids=["last", "below"])
@pytest.mark.parametrize("per_example", [False, True], ids=["static", "per_example"])
def test_a_level_above_gives_every_task_its_own_input(per_example, shared):
    looks = "by_gate" if per_example else False
    layer = cgc(shared=shared, per_example=looks, shared_input=False)
    filled(layer, STACKED)
    # Three shared experts see the last entry, two of each task that of the task.
    experts = numpy(layer.experts(STACKED[:, [2, 2, 2]]))
    own = numpy(layer.task_experts(STACKED[:, [0, 0, 1, 1]]))
    weights = np.zeros((2, 2, 5), "float32")
    for_all = None
    if per_example:
        for t in range(2):
            weights[:, t] = numpy(layer.gate.expert_weights(STACKED[:, t]))[:, t]
        if shared:
            for_all = numpy(layer.shared_gate.expert_weights(STACKED[:, 2]))
    else:
        weights[:] = numpy(layer.gate.expert_weights())
        if shared:
            for_all = numpy(layer.shared_gate.expert_weights())
            for_all = np.broadcast_to(for_all, (2, 7))
    expected = mixed_by_hand(experts, own, weights, for_all)
    assert_close(layer(STACKED), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gate", [SoftmaxGate, lambda: DSelectKGate(2)])
@pytest.mark.parametrize("per_example", [False, True], ids=["static", "per_example"])
def test_without_task_experts_it_is_mmoe(gate, per_example):
    bank = DenseExperts(3, [2], "tanh")
    layer = filled(CGC(bank, gate(), 2, 0, per_example), X)
    mmoe = MMoE(bank, layer.gate, 2, per_example, stacked=True)
    assert_equal(layer(X), mmoe(X))
    found = weight_gradients(layer, lambda: ops.sum(layer(X) ** 2))
    assert len(found) == 2 + len(layer.gate.trainable_variables)
    assert all(each.any() for each in found)


def test_a_task_does_not_reach_the_experts_and_gates_of_others():
    layer = filled(cgc(shared=True), X)
    variables = [*layer.task_experts.weights, *layer.experts.weights]
    variables += layer.gate.trainable_weights + layer.shared_gate.trainable_weights

    def reached(entry):
        _, found = value_and_gradients(lambda: [ops.sum(layer(X)[:, entry])], variables)
        kernel, _, shared, _, gate, of_all = found
        own, gates = ([part.any() for part in each] for each in (kernel, gate))
        return own, shared.any(), gates, of_all.any()

    assert reached(0) == ([True, True, False, False], True, [True, False], False)
    assert reached(1) == ([False, False, True, True], True, [False, True], False)
    assert reached(2) == ([True] * 4, True, [False, False], True)


@pytest.mark.backend_independent
def test_penalties_of_both_gates_are_added_once_in_training():
    layer = cgc(lambda: DSelectKGate(2, entropy_reg=0.1), shared=True)
    layer(X)
    assert not layer.losses
    layer(X, training=True)
    assert_close(layer.losses, [*layer.gate.losses, *layer.shared_gate.losses])
    assert int(layer.gate.step) == 1


@pytest.mark.backend_independent
def test_expert_weights_are_those_of_the_gates():
    assert filled(cgc(), X).expert_weights().shape == (2, 5)
    below = filled(cgc(per_example=True), X)
    assert_equal(below.expert_weights(X), below.gate.expert_weights(X))
    above = filled(cgc(per_example="by_gate", shared_input=False, shared=True), STACKED)
    weights = numpy(above.expert_weights(STACKED))
    assert weights.shape == (2, 2, 5)
    for t in range(2):
        each = numpy(above.gate.expert_weights(STACKED[:, t]))[:, t]
        assert_close(weights[:, t], each, rtol=1e-5)
    calls = []
    with recording(calls.append):
        mixtures = above(STACKED)
    of_tasks, shared = calls
    assert (of_tasks.gate, shared.gate) == (above.gate, above.shared_gate)
    routed = shared.routing.weights
    assert_equal(routed, above.shared_gate.expert_weights(STACKED[:, 2]))
    last = ops.expand_dims(shared.mixture, 1)
    assert_equal(mixtures, ops.concatenate([of_tasks.mixture, last], axis=1))
    # Three shared experts, and two of each task.
    assert (of_tasks.experts.shape[1], of_tasks.own.shape[1]) == (3, 4)
    both = ops.concatenate([of_tasks.experts, of_tasks.own], axis=1)
    assert_equal(shared.experts, both)
    by_hand = np.einsum("bn,bnu->bu", numpy(routed), numpy(both))
    assert_close(shared.mixture, by_hand, rtol=1e-4)


@pytest.mark.traced
def test_levels_of_convolutions_and_of_sequences_of_any_length():
    inputs = keras.Input((None, 1))
    bank = Experts(layers.Conv1D(2, 3, padding="same"), 2)
    x = CGC(bank, SoftmaxGate(), 2, shared_gate=SoftmaxGate())(inputs)
    bank = Experts(layers.Conv1D(3, 3, padding="same"), 2, shared_input=False)
    model = keras.Model(inputs, CGC(bank, SoftmaxGate(), 2)(x))
    assert model.predict(numbers((4, 5, 1)), verbose=0).shape == (4, 2, 5, 3)
    dense = CGC(DenseExperts(2, [4]), SoftmaxGate(), 2, shared_gate=SoftmaxGate())
    model = keras.Model(inputs, dense(inputs))
    assert model.predict(numbers((4, 5, 1)), verbose=0).shape == (4, 3, 5, 4)


@pytest.mark.backend_independent
def test_fixed_seeds_do_not_make_shared_and_own_experts_equal():
    seeded = keras.initializers.RandomNormal(seed=3)
    template = layers.Dense(4, kernel_initializer=seeded)
    for bank in (DenseExperts(2, [4], kernel_initializer=seeded), Experts(template, 2)):
        layer = CGC(bank, SoftmaxGate(), 2)
        layer.build((None, 3))
        weights = [w for b in (layer.experts, layer.task_experts) for w in b.weights]
        kernels = [numpy(w).reshape(-1, 3, 4) for w in weights[::2]]
        assert len(np.unique(np.concatenate(kernels)[:, 0, 0])) == 4


@pytest.mark.parametrize("length", [(), (3,), (4,)])
@pytest.mark.parametrize("shared", [0, 1])
def test_each_gate_has_its_own_routing_inputs_if_that_is_said(shared, length):
    layer = cgc(tasks=3, shared=bool(shared), per_example="by_gate")
    x, v = numbers((2, *length, 3)), numbers((2, *length, 3 + shared, 5), seed=1)
    filled(layer, (x, v))
    assert layer(x, v).shape == (2, *length, 3 + shared, 2)
    weights = numpy(layer.expert_weights(x, v)).reshape(-1, 3, 5)
    rows = v.reshape(-1, 3 + shared, 5)
    for t in range(3):
        each = numpy(layer.gate.expert_weights(rows[:, t]))[:, t]
        assert_close(weights[:, t], each, rtol=1e-5)
    if shared:
        own = numpy(layer.experts(x.reshape(-1, 3)))
        every = [own, numpy(layer.task_experts(x.reshape(-1, 3)))]
        mixed = numpy(layer.shared_gate.expert_weights(rows[:, 3]))
        wanted = np.einsum("bn,bnh->bh", mixed, np.concatenate(every, axis=1))
        found = numpy(layer(x, v)).reshape(-1, 4, 2)[:, 3]
        assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def with_shared(gate):
    return CGC(DenseExperts(3, [2]), SoftmaxGate(), 2, shared_gate=gate)


test_what_cannot_be_is_refused = refusals(
    *(
        (
            cgc,
            rf"num_gates=2 is needed .* num_gates={given}\.",
            partial(SoftmaxGate, num_gates=given),
        )
        for given in (3, 1)
    ),
    (cgc, "one or more `Task` or unique", {"tasks": ["a", "a"]}),
    (cgc, "num_task_experts=-1", {"num_task_experts": -1}),
    (cgc, "`gate` must be a gate", lambda: layers.Dense(2)),
    (cgc, "Unrecognized keyword argum", {"routing_network": layers.Dense(2)}),
    (with_shared, r"be a single gate, .* num_gates=2\.", SoftmaxGate(num_gates=2)),
    (with_shared, "must be a single gate", layers.Dense(2)),
    (
        cgc(shared_input=False),
        r"of 2 tasks, .* \(batch, 3, ...\). Received: \(2, 2, 4\). .* `shared_gate`",
        STACKED[:, :2],
    ),
    *(
        (
            cgc(per_example="by_gate", shared=shared),
            r'Gates with per_example="by_gate" need',
            (X, STACKED[:, : 1 + shared]),
        )
        for shared in (False, True)
    ),
    (
        cgc(per_example=True, shared_input=False),
        r'be said. .* Set per_example="by_gate"',
        STACKED,
    ),
    (cgc(), "takes no routing inputs", (X, V)),
)
