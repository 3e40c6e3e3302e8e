"""One task alone is served by its own experts, and gives what it gave."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy

from dselectk_keras import (
    ChosenGate,
    DenseExperts,
    DSelectKGate,
    MMoE,
    MultitaskModel,
    SoftmaxGate,
    Task,
    build_multitask_model,
    condense,
    per_task,
)

X = numbers((5, 3))
TASKS = [Task("a", tower=(4,)), Task("b", "binary"), Task("c", tower=(4,))]
WEIGHTS = np.zeros((3, 8), "float32")
WEIGHTS[0, [1, 4]] = 0.25, 0.75
WEIGHTS[1, 4] = 1.0
WEIGHTS[2, [6, 1]] = 0.5, 0.5


def decided(tasks=TASKS, architecture="mmoe"):
    model = build_multitask_model(
        3, tasks, architecture, experts=DenseExperts(8, [5]), gate=DSelectKGate(2)
    )
    gate = model.get_layer("mmoe").gate
    gate.assign_expert_weights(WEIGHTS[: gate.num_gates])
    return model


@pytest.mark.parametrize(
    ("name", "num_experts"), [("a", 2), ("b", 1), ("c", 2)], ids=["a", "b", "c"]
)
def test_a_task_alone_gives_what_it_gave(name, num_experts):
    model = decided()
    small = per_task(model, name)
    assert [task.name for task in small.tasks] == [name]
    assert small.get_layer("mmoe").experts.num_experts == num_experts
    np.testing.assert_allclose(numpy(small(X)[name]), numpy(model(X)[name]), atol=1e-6)


def test_towers_that_sum_and_one_gate_for_all():
    tasks = [Task("a", tower="sum"), Task("b", tower="sum")]
    for architecture in ("mmoe", "omoe"):
        model = decided(tasks, architecture)
        small = per_task(condense(model), "b")
        np.testing.assert_allclose(
            numpy(small(X)["b"]), numpy(model(X)["b"]), atol=1e-6
        )


def test_experts_that_stand_side_by_side():
    gate = ChosenGate(initial_choices=[[6, 1], [4, 6], [1, 0]], num_gates=3)
    model = build_multitask_model(
        3, TASKS, experts=DenseExperts(8, [5]), gate=gate, side_by_side=True
    )
    for small in (condense(model), per_task(model, "b"), per_task(model, "c")):
        for name, found in small(X).items():
            np.testing.assert_allclose(numpy(found), numpy(model(X)[name]), atol=1e-6)
    assert small.get_layer("mmoe").experts.num_experts == 2


def test_it_trains_saves_and_reloads(tmp_path):
    small = per_task(decided(), "b")
    small.compile("sgd")
    log = small.fit(X, np.ones((5, 1)), verbose=0).history
    assert "b_loss" in log
    small.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(again(X)["b"]), numpy(small(X)["b"]))


def test_the_layers_have_the_name_of_the_task_and_it_can_be_taken_out_again():
    model = decided()
    small = per_task(model, "c")
    names = {"towers_c", "predict_c"}
    assert names < {layer.name for layer in small.layers}
    again = per_task(small, "c")
    np.testing.assert_allclose(numpy(again(X)["c"]), numpy(model(X)["c"]), atol=1e-6)


def test_tasks_may_share_a_loss_and_have_any_name():
    loss = keras.losses.Huber(0.5)
    names = ["a/b", "c", "\u65e5"]
    model = decided([Task(name, tower=(4,), loss=loss) for name in names])
    for name in names:
        small = per_task(model, name)
        assert small.tasks[0].loss is loss
        found, expected = numpy(small(X)[name]), numpy(model(X)[name])
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_cannot_be_taken_apart_is_refused():
    with pytest.raises(ValueError, match="no task of the name 'd'"):
        per_task(decided(), "d")
    soft = build_multitask_model(3, 2, gate=SoftmaxGate())
    with pytest.raises(ValueError, match="SoftmaxGate does not choose among experts"):
        per_task(soft, "task_0")
    inputs = keras.Input((3,))
    mixtures = MMoE(DenseExperts(4, [5]), DSelectKGate(2), ["a"])(inputs)
    outputs = {"a": keras.layers.Dense(1)(mixtures["a"])}
    own = MultitaskModel(inputs, outputs, tasks=[Task("a")])
    with pytest.raises(ValueError, match=r"No such layer: (towers_a|mmoe)"):
        per_task(own, "a", tolerance=1.0)
