"""Few arrays of predictions leave the device; users get outputs by name."""

import keras
import numpy as np
from checks import assert_close, changed
from helpers import numbers, numpy
from keras import layers

import dselectk_keras as dk
from dselectk_keras.models.grouped import Grouped, by_group, by_name
from dselectk_keras.models.label_reader import make_readers

TASKS = [dk.Task("b"), dk.Task("click", "binary"), dk.Task("a")]
READERS = make_readers(TASKS)
X, Y = numbers((4, 3)), np.eye(4)[:, :3].astype("float32")
# Two examples: their outputs are 10 t and 10 t + 1.
NAMED = {"a": [[20.0], [21.0]], "click": [[10.0], [11.0]], "b": [[0.0], [1.0]]}


def test_outputs_are_stacked_by_group():
    named = {name: np.array(x) for name, x in NAMED.items()}
    found = by_group(READERS, {**named, "more": 5})
    assert numpy(found.groups[0]).tolist() == [[[0], [20]], [[1], [21]]]
    assert numpy(found.groups[1]).tolist() == [[[10]], [[11]]]
    assert found.others == {"more": 5}
    assert by_group(READERS, named["a"]) is named["a"]


def test_stacked_outputs_are_split_in_the_order_of_the_outputs():
    groups = [np.array([[[0], [20]], [[1], [21]]]), np.array([[[10]], [[11]]])]
    found = by_name(READERS, Grouped(groups, {"more": 5}), ["more", *NAMED])
    assert [*found] == ["more", *NAMED]
    assert found.pop("more") == 5
    assert {name: each.tolist() for name, each in found.items()} == NAMED
    assert by_name(READERS, groups, None) is groups


def build():
    model = dk.build_multitask_model(3, TASKS, experts=2)
    model.compile("sgd")
    return model


def test_predictions_have_names_again():
    model = build()
    expected = {name: numpy(x) for name, x in model(X).items()}
    for found in (model.predict(X, 2, 0), model.predict_on_batch(X)):
        assert [*found] == [task.name for task in TASKS]
        assert_close(found, expected, rtol=1e-5)


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
