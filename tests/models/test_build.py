"""Every architecture by name becomes a model that trains, and is what it says."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy
from keras import layers

from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    Experts,
    Task,
    build_multitask_model,
)
from dselectk_keras.models import ARCHITECTURES

X, Y = numbers((4, 3)), numbers((4, 2), seed=1)
TASKS = [Task("a", tower=(4,)), Task("b", tower=(4,))]


def make(architecture="mmoe", tasks=TASKS, inputs=3, **settings):
    settings = {"experts": DenseExperts(4, [2]), "gate": DSelectKGate(2), **settings}
    return build_multitask_model(inputs, tasks, architecture, **settings)


# Tracing a graph takes TensorFlow longer than all the rest of a small test.
EAGERLY = keras.backend.backend() == "tensorflow"


@pytest.mark.parametrize("architecture", sorted({*ARCHITECTURES} - {"moe"}))
def test_every_architecture_trains_and_reloads(architecture, tmp_path):
    model = make(architecture, gate=DSelectKGate(2, entropy_reg=0.1))
    model.compile("sgd", run_eagerly=EAGERLY)
    before = [numpy(weight) for weight in model.trainable_variables]
    model.fit(X, Y, verbose=0)
    after = [numpy(weight) for weight in model.trainable_variables]
    changed = [(a != b).any() for a, b in zip(before, after, strict=True)]
    assert all(changed)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    report = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert loaded.evaluate(X, Y, verbose=0, return_dict=True) == report
    expected = model.predict(X, verbose=0)
    for name, outputs in loaded.predict(X, verbose=0).items():
        np.testing.assert_array_equal(outputs, expected[name])


def mixtures_by_hand(architecture, model):
    """What each of the two towers sees, (batch, tasks, features)."""
    if architecture == "single_task":
        return numpy(model.layers[1](X))
    if architecture == "shared_bottom":
        return np.repeat(numpy(model.layers[1](X)), 2, axis=1)
    mmoe = model.get_layer("mmoe")
    weights = np.broadcast_to(numpy(mmoe.expert_weights()), (2, 4))
    return np.einsum("tn,bnh->bth", weights, numpy(mmoe.experts(X)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_shares_experts_as_it_says(architecture):
    model = make(architecture, tasks=[Task("a", tower="sum"), Task("b", tower="sum")])
    mixtures = mixtures_by_hand(architecture, model)
    outputs = model(X)
    for t, name in enumerate("ab"):
        np.testing.assert_allclose(
            numpy(outputs[name]), mixtures[:, t].sum(axis=1, keepdims=True), rtol=1e-5
        )
    # Kernel and bias of each expert, and the gates' two sorts of logits.
    num_experts = {"single_task": 2, "shared_bottom": 1}.get(architecture, 4)
    num_gates = {"mmoe": 2, "moe": 1, "omoe": 1}.get(architecture, 0)
    assert model.count_params() == num_experts * (3 * 2 + 2) + num_gates * (2 * 2 + 2)


def test_each_task_has_a_tower_of_its_own():
    model = make()
    tower = model.get_layer("towers_0")
    w0, b0, w1, b1 = (numpy(weight) for weight in tower.weights)
    mixtures = mixtures_by_hand("mmoe", model)
    outputs = model(X)
    for t, name in enumerate("ab"):
        hidden = np.maximum(mixtures[:, t] @ w0[t] + b0[t], 0.0)
        np.testing.assert_allclose(
            numpy(outputs[name]), hidden @ w1[t] + b1[t], rtol=1e-4, atol=1e-6
        )


def test_unlike_tasks_keep_their_places_among_the_gates():
    tasks = [Task("a", tower="sum"), Task("b", "binary"), Task("c", tower="sum")]
    model = make(tasks=tasks)
    mmoe = model.get_layer("mmoe")
    mmoe.gate.set_weights([numbers(w.shape, seed=3) for w in mmoe.gate.weights])
    weights, experts = numpy(mmoe.expert_weights()), numpy(mmoe.experts(X))
    outputs = model(X)
    for t, name in ((0, "a"), (2, "c")):
        expected = np.einsum("n,bnh->b", weights[t], experts)
        np.testing.assert_allclose(numpy(outputs[name])[:, 0], expected, rtol=1e-5)


def test_per_example_gates_look_at_the_features():
    encoder_input = keras.Input((3,))
    encoder = keras.Model(encoder_input, layers.Dense(5, "tanh")(encoder_input))
    model = make(inputs=encoder, per_example=True)
    mmoe = model.get_layer("mmoe")
    assert mmoe.gate.routing_dim == 5
    model.compile("sgd", run_eagerly=EAGERLY)
    before = numpy(encoder.trainable_variables[0])
    model.fit(X, Y, verbose=0)
    assert (numpy(encoder.trainable_variables[0]) != before).any()


def test_an_encoder_may_have_several_inputs():
    numbers_in = keras.Input((3,), name="numbers")
    word = keras.Input((), name="word", dtype="int32")
    features = layers.concatenate([numbers_in, layers.Embedding(7, 2)(word)])
    encoder = keras.Model({"numbers": numbers_in, "word": word}, features)
    model = make(inputs=encoder)
    model.compile("sgd")
    x = {"numbers": X, "word": np.array([0, 6, 2, 1])}
    log = model.fit(x, Y, verbose=0)
    assert np.isfinite(log.history["loss"]).all()
    assert model.predict(x, verbose=0)["a"].shape == (4, 1)


@pytest.mark.parametrize(
    "inputs", [3, (3,), keras.Input((3,))], ids=["number", "shape", "input"]
)
def test_inputs_may_be_a_number_a_shape_or_a_keras_input(inputs):
    assert make(inputs=inputs)(X)["a"].shape == (4, 1)


def test_experts_of_higher_rank_are_flattened_for_the_towers():
    bank = Experts(layers.Conv1D(2, 2), 3)
    model = make(inputs=(5, 1), experts=bank)
    assert model(numbers((4, 5, 1)))["b"].shape == (4, 1)
    assert model.get_layer("towers_0").weights[0].shape == (2, 4 * 2, 4)


def test_moe_is_another_name_for_omoe():
    assert ARCHITECTURES["moe"] is ARCHITECTURES["omoe"]


def test_tasks_may_be_names_or_a_number():
    assert sorted(make(tasks=["x", "y"])(X)) == ["x", "y"]
    assert sorted(make(tasks=2)(X)) == ["task_0", "task_1"]


def test_a_task_may_have_any_name():
    model = make(tasks=[Task("Likes & shares", "binary"), Task("né/2")])
    model.compile("sgd")
    log = model.fit(X, np.ones((4, 2)), verbose=0).history
    assert {"Likes & shares_loss", "né/2_loss"} <= set(log)


@pytest.mark.parametrize("architecture", ["single_task", "mmoe"])
def test_widths_are_scaled_to_a_number_of_parameters(architecture):
    experts = DenseExperts(4, [8, 4])
    model = make(architecture, inputs=20, experts=experts, num_params=6000)
    assert abs(model.count_params() - 6000) / 6000 < 0.04
    first, second = next(
        layer.units
        for layer in model._flatten_layers()
        if isinstance(layer, DenseExperts) and layer.shared_input
    )
    assert abs(first / second - 2) < 0.2


def test_many_tasks_are_one_bank_of_towers_and_one_layer_of_gates():
    model = make(tasks=128)
    assert model.get_layer("mmoe").gate.num_gates == 128
    assert len(model.trainable_variables) == 2 + 2 + 2
    model.compile("sgd")
    log = model.fit(X, np.zeros((4, 128)), verbose=0).history
    assert len([name for name in log if name.endswith("_loss")]) == 129


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"architecture": "mmmoe"}, "'mmmoe'. Known architectures: single_task, "),
        ({"tasks": ["a", "b", "a"]}, r"Received twice: \['a'\]"),
        ({"tasks": []}, "one or more, or a number"),
        ({"tasks": ["a", 3]}, "must be `Task` objects or names"),
        ({"experts": layers.Dense(3)}, "`experts` must be a bank"),
        ({"gate": "softmax"}, "`gate` a gate such as"),
        ({"inputs": "features"}, "`inputs` must be a number of features"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        make(**arguments)


def test_only_dense_experts_are_scaled():
    with pytest.raises(ValueError, match="scales the widths of `DenseExperts`"):
        make(experts=Experts(layers.Dense(2), 2), num_params=100)
