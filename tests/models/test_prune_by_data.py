"""Per-example gates keep the experts that matter most on data."""

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_equal, changed
from helpers import numbers, numpy, refusals, reloaded
from keras import layers

import dselectk_keras as dk
from dselectk_keras.gates.record import recording
from dselectk_keras.models import condense

pytestmark = pytest.mark.backend_independent

X = numbers((40, 3))


def mixture(gate=None, bank=None, **options):
    """A model of three tasks, whose gates have a bias."""
    gate = gate or dk.TopKGate(2, use_bias=True)
    bank = bank or dk.DenseExperts(5, [4])
    inputs = keras.Input((3,))
    layer = dk.MMoE(bank, gate, 3, per_example=True, stacked=True, **options)
    return keras.Model(inputs, layer(inputs))


def without(model, kept, num_gates=3):
    """Make the gates of the last layer choose these experts alone; return the model."""
    gate = model.layers[-1].gate
    for bias in [gate._logits.bias, getattr(gate, "_bias", None)]:
        if bias is None:
            continue
        value = numpy(bias).reshape(num_gates, -1)
        others = np.setdiff1d(np.arange(value.shape[1]), kept)
        value[:, others] = -1e9
        bias.assign(value.reshape(bias.shape))
    return model


@pytest.mark.every_backend
def test_the_experts_of_the_largest_saliency_stay(capsys):
    # Of the gate: experts 0 and 1 by halves, and 1 and 2 by three quarters and one.
    kernel = [[0.0, 0.0, -99.0], [-99.0, np.log(3.0), 0.0]]
    inputs = keras.Input((2,))
    bank = dk.DenseExperts(3, [2], activation="linear")
    moe = dk.MoE(bank, dk.TopKGate(2), per_example=True)
    model = keras.Model(inputs, moe(inputs))
    moe.gate.set_weights([np.array(kernel, "float32")])
    # Norms of 2, 1 and 10, for both examples.
    outputs = np.array([[1.2, 1.6], [0.0, 1.0], [6.0, -8.0]])
    bank.set_weights([np.repeat(outputs[:, None], 2, axis=1), np.zeros((3, 2))])
    # Saliencies of 1/2 x 2, (1/2 + 3/4) / 2 x 1, and 1/4 x 10.
    x = np.eye(2, dtype="float32")
    small = condense(model, data=x, experts=2)
    assert capsys.readouterr().out.replace(moe.name, "moe") == (
        "moe: 2 of 3 experts kept. Others had 50.0% of the choices, and 62.5% of the "
        "weight.\n"
    )
    assert_close(small(x), outputs[[0, 2]], atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dk.TopKGate(2, use_bias=True, noise=True, bias_rate=0.1),
        lambda: dk.SoftmaxGate(use_bias=True, normalize=True),
        lambda: dk.SwitchGate(use_bias=True),
    ],
    ids=["TopK", "Softmax", "Switch"],
)
@pytest.mark.parametrize(
    "bank",
    [
        lambda: dk.DenseExperts(5, [4, 2]),
        lambda: dk.Experts(keras.Sequential([layers.Dense(2), layers.ReLU()]), 5),
    ],
    ids=["DenseExperts", "Experts"],
)
def test_the_gates_choose_among_the_experts_that_are_left(make, bank, tmp_path):
    model = mixture(make(), bank())
    gate = model.layers[-1].gate
    gate._logits.bias.assign(numbers((15,), seed=3))
    if hasattr(gate, "_bias"):
        gate._bias.assign(numbers((3, 5), seed=4))
    small = condense(model, data=X, experts=3)
    layer = model.layers[-1]
    weights, outputs = numpy(layer.expert_weights(X)), numpy(layer.experts(X))
    norms = np.linalg.norm(outputs, axis=-1)
    chosen = np.maximum((weights > 0).sum(axis=(0, 1)), 1)
    saliency = np.einsum("btn,bn->n", weights, norms) / chosen
    kept = np.argsort(-saliency, kind="stable")[:3]
    assert small.layers[-1].experts.num_experts == 3
    assert_close(small(X), without(model, kept)(X), atol=1e-5)
    assert_equal(numpy(reloaded(small, tmp_path)(X)), numpy(small(X)))


@pytest.mark.every_backend
def test_the_copy_trains_on_and_the_model_stays():
    model = mixture()
    model.compile("sgd", "mse")
    before = numpy(model(X))
    small = condense(model, data=X, experts=2)
    moved = changed(
        small.trainable_variables,
        lambda: small.fit(X, numbers((40, 3, 4)), verbose=0),
    )
    assert all(moved)
    assert_equal(numpy(model(X)), before)
    model.layers[-1].gate.trainable = False
    assert not condense(model, data=X, experts=3).layers[-1].gate.trainable_variables


def test_routing_inputs_have_a_network_that_is_copied():
    inputs, routing = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    gate = dk.TopKGate(1, use_bias=True)
    moe = dk.MoE(dk.DenseExperts(4, [2]), gate, True, layers.Dense(3))
    model = keras.Model({"a": inputs, "b": routing}, moe(inputs, routing))
    data = {"a": X, "b": numbers((40, 2), seed=1)}
    small = condense(model, data=data, experts=2)
    share = numpy(moe.expert_weights(data["a"], data["b"]))
    norms = np.linalg.norm(numpy(moe.experts(X)), axis=-1)
    saliency = (share * norms).sum(axis=0) / np.maximum((share > 0).sum(axis=0), 1)
    kept = np.argsort(-saliency, kind="stable")[:2]
    assert_close(small(data), without(model, kept, 1)(data), atol=1e-5)


def test_data_may_be_a_table():
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "unused": 1.0})
    inputs = {name: keras.Input((1,), name=name) for name in "ab"}
    encoder = keras.Model(inputs, layers.Concatenate()(list(inputs.values())))
    model = dk.build_multitask_model(encoder, 1, "mmoe", 4, "top_k", per_example=True)
    small = condense(model, data=frame, experts=2)
    assert small.get_layer("mmoe").experts.num_experts == 2


def test_a_mask_that_the_layer_is_called_with_counts_too(capsys):
    tokens, mask = keras.Input((3, 2)), keras.Input((3,), dtype="bool")
    moe = dk.MoE(dk.DenseExperts(3, [1]), dk.TopKGate(1), per_example=True)
    model = keras.Model([tokens, mask], moe(tokens, mask=mask))
    kernel = [[9, 0, -9], [0, 9, -9]]  # Padding would choose expert 2.
    moe.gate.set_weights([np.array(kernel, "float32")])
    x = np.array([[[1, 0], [0, 1], [-9, -9]]] * 2, "float32")
    condense(model, data=[x, np.array([[True, True, False]] * 2)], experts=2)
    assert "Others had 0.0% of the choices" in capsys.readouterr().out


def test_each_per_example_layer_keeps_as_many_and_static_ones_stay():
    inputs = x = keras.Input((3,))
    for n, per_example in ((4, True), (5, False), (6, True)):
        x = dk.MoE(dk.DenseExperts(n, [3]), dk.TopKGate(2), per_example)(x)
    small = condense(keras.Model(inputs, x), data=X, experts=2)
    assert [each.experts.num_experts for each in small.layers[1:]] == [2, 5, 2]


def levels(make=lambda: dk.TopKGate(2, use_bias=True)):
    """A PLE model of two tasks with three experts of their own, and four shared ones.

    Returns the model, and its two layers.
    """
    inputs = keras.Input((3,))
    lower = dk.CGC(dk.DenseExperts(4, [3]), make(), 2, 3, True, make())
    bank = dk.DenseExperts(4, [2], shared_input=False)
    upper = dk.CGC(bank, make(), 2, 3, "by_gate")
    return keras.Model(inputs, upper(lower(inputs))), lower, upper


def experts_of(weights, t):
    """The numbers of the experts of a gate: one of two tasks, or the shared one."""
    return (
        range(10) if weights.shape[1] == 1 else [*range(4), *range(4, 10)[3 * t :][:3]]
    )


def kept_by_hand(calls, number):
    """The experts of a layer that stay: of the shared ones, and of each task."""
    outputs = np.concatenate([numpy(each) for each in calls[0][2::2]], axis=1)
    pairs = [[] for _ in range(10)]
    for call in calls:
        weights = numpy(call.routing.weights)
        weights = weights.reshape(len(X), -1, weights.shape[-1])
        for b, t, place in np.argwhere(weights > 0):
            i = experts_of(weights, t)[place]
            size = np.linalg.norm(outputs[b, i])
            pairs[i].append(weights[b, t, place] * size)
    saliency = [np.mean(each) if each else 0.0 for each in pairs]
    groups = range(4), range(4, 7), range(7, 10)
    order = [sorted(group, key=lambda i: -saliency[i]) for group in groups]
    return [i for group in order for i in group[:number]]


def test_levels_of_ple_keep_shared_experts_and_those_of_each_task(tmp_path, capsys):
    model, lower, upper = levels()
    for i, gate in enumerate((lower.gate, lower.shared_gate, upper.gate)):
        gate._logits.bias.assign(numbers(gate._logits.bias.shape, seed=i))
    calls = []
    with recording(calls.append):
        model(X)
    small = condense(model, data=X, experts=2)
    assert capsys.readouterr().out.count("6 of 10 experts kept") == 2
    for layer, own in ((lower, calls[:2]), (upper, calls[2:])):
        new, kept = small.get_layer(layer.name), kept_by_hand(own, 2)
        assert (new.experts.num_experts, new.num_task_experts) == (2, 2)
        for call in own:
            bias, t = call.gate._logits.bias, call.gate.num_gates or 1
            value = numpy(bias).reshape(1, t, -1)
            for row in range(t):
                others = ~np.isin(experts_of(value, row), kept)
                value[0, row, others] = -1e9
            bias.assign(value.ravel())
    assert_close(small(X), model(X), atol=1e-5)
    assert_equal(numpy(reloaded(small, tmp_path)(X)), numpy(small(X)))


def test_few_experts_of_each_task_stay_all():
    model, lower, _ = levels(dk.SoftmaxGate)
    lower.task_experts.trainable = False
    small = condense(model, data=X, experts=3)
    new = small.get_layer(lower.name)
    assert (new.experts.num_experts, new.num_task_experts) == (3, 3)
    assert not new.task_experts.trainable
    assert_equal(new.task_experts.weights, lower.task_experts.weights)


def test_frozen_layers_inside_of_experts_of_each_task_stay_frozen():
    network = keras.Sequential([keras.Input((3,)), layers.Dense(3), layers.Dense(2)])
    network.layers[0].trainable = False
    inputs = keras.Input((3,))
    cgc = dk.CGC(dk.Experts(network, 4), dk.SoftmaxGate(), 2, 2, True)
    small = condense(keras.Model(inputs, cgc(inputs)), data=X, experts=2)
    assert len(cgc.task_experts.trainable_variables) == 8
    assert len(small.layers[-1].task_experts.trainable_variables) == 8


def static():
    inputs = keras.Input((3,))
    return keras.Model(inputs, dk.MoE(dk.DenseExperts(4, [2]), dk.TopKGate(1))(inputs))


def pruned(make=mixture, **arguments):
    return condense(make(), **arguments)


test_what_cannot_be_pruned_is_refused = refusals(
    (pruned, "needed together: .*experts=None, and data=True", {"data": X}),
    (pruned, "Received: experts=2, and data=False", {"experts": 2}),
    (pruned, "From 2 to 5 experts.*experts=1", {"data": X, "experts": 1}),
    (pruned, "From 2 to 5 experts.*experts=6", {"data": X, "experts": 6}),
    (pruned, "`experts` must be", {"data": X, "experts": 2.5}),
    (
        pruned,
        "static gates alone. Leave `data`",
        {"make": static, "data": X, "experts": 2},
    ),
    (
        pruned,
        "a logit per expert.*Received: gate=<DSelectKGate",
        {"make": lambda: mixture(dk.DSelectKGate(2)), "data": X, "experts": 2},
    ),
    (pruned, "per-example. Of a per-example gate, `condense` takes `data`"),
    (
        pruned,
        "From 2 to 4 experts.*experts=1",
        {"make": lambda: levels(lambda: dk.TopKGate(3))[0], "data": X, "experts": 1},
    ),
)


@pytest.mark.every_backend
@pytest.mark.parametrize("dispatch", [True, False])
def test_padding_and_its_content_change_nothing(dispatch):
    inputs, mask = keras.Input((5, 3)), keras.Input((5,), dtype="bool")
    bank, gate = dk.DenseExperts(6, [4], "tanh"), dk.TopKGate(2)
    layer = dk.MoE(bank, gate, per_example=True, dispatch=dispatch)
    model = keras.Model([inputs, mask], layer(inputs, mask=mask))
    scale = np.array([0.01, 0.01, 0.01, 1, 1, 1])[:, None, None]
    bank.variables[0].assign(numpy(bank.variables[0]) * scale)
    valid = np.arange(5) < np.arange(40)[:, None] % 5 + 1
    kernels = []
    for content in (0.0, 7.0, np.nan):
        x = np.where(valid[..., None], numbers((40, 5, 3)), np.float32(content))
        small = condense(model, data=[x, valid], experts=3)
        kernels.append(numpy(small.layers[-1].experts.variables[0]))
    assert_equal(kernels[1], kernels[0])
    assert_equal(kernels[2], kernels[0])
    assert layer.dispatches == dispatch


def test_data_without_rows_or_with_numbers_that_are_not_finite_are_refused(monkeypatch):
    monkeypatch.setattr("dselectk_keras.models.prune_by_data.BATCH_SIZE", 16)
    model, x = mixture(), X.copy()
    with pytest.raises(ValueError, match="Received: no examples"):
        condense(model, data=x[:0], experts=3)
    x[37, 1] = np.inf
    text = rf"infinity in the layer '{model.layers[-1].name}', first for row 37\."
    with pytest.raises(ValueError, match=text):
        condense(model, data=x, experts=3)
