"""One task alone is served by its own experts, and gives what it gave."""

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numbers, numpy, refusals, reloaded
from models.test_condense import WEIGHTS

import dselectk_keras as dk

X = numbers((5, 3))
TASKS = [dk.Task("a", tower=(4,)), dk.Task("b", "binary"), dk.Task("c", tower=(4,))]


def decided(tasks=TASKS, architecture="mmoe"):
    parts = dk.DenseExperts(8, [5]), dk.DSelectKGate(2)
    model = dk.build_multitask_model(3, tasks, architecture, *parts)
    gate = model.get_layer("mmoe").gate
    gate.assign_expert_weights(WEIGHTS[: gate.num_gates])
    return model


@pytest.mark.parametrize(("name", "num_experts"), [("a", 2), ("b", 1), ("c", 2)])
def test_a_task_alone_gives_what_it_gave(name, num_experts):
    model = decided()
    small = dk.per_task(model, name)
    assert [task.name for task in small.tasks] == [name]
    assert small.get_layer("mmoe").experts.num_experts == num_experts
    assert_close(small(X)[name], model(X)[name], atol=1e-6)


def test_towers_that_sum_and_one_gate_for_all_or_experts_side_by_side():
    tasks = [dk.Task("a", tower="sum"), dk.Task("b", tower="sum")]
    for architecture in ("mmoe", "omoe"):
        model = decided(tasks, architecture)
        small = dk.per_task(dk.condense(model), "b")
        found, expected = numpy(small(X)["b"]), numpy(model(X)["b"])
        assert_close(found, expected, atol=1e-6)
    gate = dk.ChosenGate(initial_choices=[[6, 1], [4, 6], [1, 0]], num_gates=3)
    settings = {"experts": dk.DenseExperts(8, [5]), "side_by_side": True}
    model = dk.build_multitask_model(3, TASKS, gate=gate, **settings)
    for small in (dk.condense(model), dk.per_task(model, "b"), dk.per_task(model, "c")):
        for name, found in small(X).items():
            assert_close(found, model(X)[name], atol=1e-6)
    assert small.get_layer("mmoe").experts.num_experts == 2


def test_a_task_alone_reloads_has_its_name_and_can_be_taken_out_again(tmp_path):
    small = dk.per_task(decided(), "b")
    small.compile("sgd")
    assert "b_loss" in small.fit(X, np.eye(5)[:, :1], verbose=0).history
    assert_equal(reloaded(small, tmp_path)(X)["b"], small(X)["b"])
    model = decided()
    small = dk.per_task(model, "c")
    names = {"towers_c", "predict_c"}
    assert names < {layer.name for layer in small.layers}
    assert_close(dk.per_task(small, "c")(X)["c"], model(X)["c"], atol=1e-6)


def test_tasks_may_share_a_loss_and_have_any_name():
    loss = keras.losses.Huber(0.5)
    names = ["a/b", "c", "\u65e5"]
    model = decided([dk.Task(name, tower=(4,), loss=loss) for name in names])
    for name in names:
        small = dk.per_task(model, name)
        assert small.tasks[0].loss is loss
        found, expected = numpy(small(X)[name]), numpy(model(X)[name])
        assert_close(found, expected, atol=1e-6)


def of_own_layers():
    inputs = keras.Input((3,))
    mixtures = dk.MMoE(dk.DenseExperts(4, [5]), dk.DSelectKGate(2), ["a"])(inputs)
    outputs = {"a": keras.layers.Dense(1)(mixtures["a"])}
    return dk.MultitaskModel(inputs, outputs, tasks=[dk.Task("a")])


SOFT = dk.build_multitask_model(3, 2, gate=dk.SoftmaxGate())
test_what_cannot_be_taken_apart_is_refused = refusals(
    (lambda: dk.per_task(decided(), "d"), "no task of the name 'd'"),
    (dk.per_task, "SoftmaxGate does not choose among experts", (SOFT, "task_0")),
    (dk.per_task, r"No such layer: (towers_a|mmoe)", (of_own_layers(), "a", 1.0)),
)
