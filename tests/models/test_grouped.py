"""Steps read one tensor per group of tasks; users get outputs by name."""

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed
from helpers import numbers, numpy
from keras import layers

import dselectk_keras as dk
from dselectk_keras._keras import calls_in
from dselectk_keras.models.grouped import Grouped, by_group, by_name, graph_by_group
from dselectk_keras.models.label_reader import make_readers
from dselectk_keras.models.towers import Predict

TASKS = [dk.Task("b"), dk.Task("click", "binary"), dk.Task("a")]
READERS = make_readers(TASKS)
X, Y = numbers((4, 3)), np.eye(4)[:, :3].astype("float32")
# Two examples: their outputs are 10 t and 10 t + 1.
NAMED = {"a": [[20.0], [21.0]], "click": [[10.0], [11.0]], "b": [[0.0], [1.0]]}
STACKED = [[0.0, 10.0, 20.0], [1.0, 11.0, 21.0]]


@pytest.mark.parametrize("form", ["named", "stacked"])
def test_outputs_are_stacked_by_group(form):
    outputs = {**NAMED, "more": [[5.0], [6.0]]} if form == "named" else STACKED
    outputs = (
        {n: np.array(x) for n, x in outputs.items()}
        if form == "named"
        else (np.array(outputs))
    )
    found = by_group(READERS, outputs)
    assert numpy(found.groups[0]).tolist() == [[[0], [20]], [[1], [21]]]
    assert numpy(found.groups[1]).tolist() == [[[10]], [[11]]]
    assert [*found.others] == (["more"] if form == "named" else [])
    assert by_group(READERS, found) is found


def test_stacked_outputs_are_split_in_the_order_of_the_outputs():
    groups = [np.array([[[0], [20]], [[1], [21]]]), np.array([[[10]], [[11]]])]
    found = by_name(READERS, Grouped(groups, {"more": 5}), ["more", *NAMED])
    assert [*found] == ["more", *NAMED]
    assert found.pop("more") == 5
    assert {name: each.tolist() for name, each in found.items()} == NAMED
    assert by_name(READERS, groups, None) is groups


def build(**settings):
    model = dk.build_multitask_model(3, TASKS, experts=2, **settings)
    model.compile("sgd")
    return model


def operations(model):
    return [type(call.operation).__name__ for call in calls_in(model)]


@pytest.fixture
def seen(monkeypatch):
    """The predictions that steps give to the loss."""
    found, own = [], dk.MultitaskModel.compute_loss

    def compute_loss(self, x, y, y_pred, *args, **settings):
        found.append(y_pred)
        return own(self, x, y, y_pred, *args, **settings)

    monkeypatch.setattr(dk.MultitaskModel, "compute_loss", compute_loss)
    return found


@pytest.mark.parametrize("stacked", [False, True])
def test_a_step_computes_one_tensor_per_group(stacked, seen):
    model = build(stacked=stacked)
    for method in (model.train_on_batch, model.test_on_batch):
        method(X, Y)
        shapes = [tuple(each.shape) for each in seen[-1].groups]
        assert shapes == [(4, 2, 1), (4, 1, 1)]


def test_a_loss_given_to_compile_reads_outputs_by_name(seen):
    model = build()
    model.compile("sgd", dict.fromkeys(NAMED, "mse"))
    model.train_on_batch(X, dict.fromkeys(NAMED, Y[:, :1]))
    assert {*seen[-1]} == {*NAMED}


def test_predictions_have_names_again():
    model = build()
    expected = {name: numpy(x) for name, x in model(X).items()}
    for found in (model.predict(X, 2, 0), model.predict_on_batch(X)):
        assert [*found] == [task.name for task in TASKS]
        assert_close(found, expected, rtol=1e-5)


def test_the_graph_of_a_step_does_not_split_what_it_stacks():
    model = build()
    graph = graph_by_group(model.readers, model)
    assert not {"Stack", "Split"} & {*operations(graph)}
    names = [layer.names for layer in graph.layers if isinstance(layer, Predict)]
    assert names == [None, None]
    # Other layers than towers give each task its output.
    inputs = keras.Input((3,))
    outputs = {task.name: layers.Dense(1)(inputs) for task in TASKS}
    model = dk.MultitaskModel(inputs, outputs, tasks=TASKS)
    assert operations(graph_by_group(model.readers, model)).count("Stack") == 2


def test_layers_behind_a_tower_and_more_outputs_are_trained():
    model = build()
    outputs = dict(model.output)
    outputs["a"] = layers.Dense(1, name="unit")(outputs["a"])
    measured = layers.Dense(1, activity_regularizer=keras.regularizers.L2(1.0))
    outputs["more"] = measured(model.input)
    model = dk.MultitaskModel(model.input, outputs, tasks=TASKS)
    model.compile(keras.optimizers.SGD(0.1))
    found = model(X, training=True)
    expected = numpy(model.compute_loss(X, Y, found))
    penalty = (numpy(found["more"]) ** 2).mean()
    log = model.test_on_batch(X, Y, return_dict=True)
    assert_close(log["loss"], expected, rtol=1e-5)
    assert_close(log["loss"] - log["task_loss"], penalty, rtol=1e-3)
    trained = [*measured.weights, *model.get_layer("unit").weights]
    assert all(changed(trained, lambda: model.train_on_batch(X, Y)))
    assert_close(model.predict(X, verbose=0), dict(model(X)), rtol=1e-5)


def test_outputs_have_names_after_a_step_that_failed():
    model = build()
    with pytest.raises(ValueError, match="one array of shape"):
        model.train_on_batch(X, Y[:, :2])
    assert {*model(X)} == {*NAMED}
    clone = type(model).from_config(model.get_config())
    clone.set_weights(model.get_weights())
    assert_equal(model(X), clone(X))
