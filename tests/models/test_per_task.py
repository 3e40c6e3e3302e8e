"""One task alone is served by its own experts, and gives what it gave."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numbers, numpy, refusals, reloaded
from keras import layers, ops
from models.test_condense import WEIGHTS, subclassed

import dselectk_keras as dk

pytestmark = pytest.mark.backend_independent

X = numbers((5, 3))
TASKS = [dk.Task("a", tower=(4,)), dk.Task("b", "binary"), dk.Task("c", tower=(4,))]


def decided(tasks=TASKS, architecture="mmoe", gate=None):
    parts = dk.DenseExperts(8, [5]), gate or dk.DSelectKGate(2)
    options = {"label_average": "labels"}
    model = dk.build_multitask_model(3, tasks, architecture, *parts, **options)
    gate = model.get_layer("mmoe").gate
    gate.assign_expert_weights(WEIGHTS[: gate.num_gates])
    return model


@pytest.mark.every_backend
@pytest.mark.parametrize(("name", "num_experts"), [("a", 2), ("b", 1), ("c", 2)])
def test_a_task_alone_gives_what_it_gave(name, num_experts, tmp_path):
    model = decided()
    small = dk.per_task(model, name)
    assert [task.name for task in small.tasks] == [name]
    assert small.task_losses.label_average == "labels"
    assert small.get_layer("mmoe").experts.num_experts == num_experts
    assert {f"towers_{name}", f"predict_{name}"} < {x.name for x in small.layers}
    assert_close(small(X)[name], model(X)[name], atol=1e-6)
    small.compile("sgd")
    assert f"{name}_loss" in small.fit(X, np.eye(5)[:, :1], verbose=0).history
    assert_equal(reloaded(small, tmp_path)(X)[name], small(X)[name])


def test_towers_that_sum_and_one_gate_for_all_or_experts_side_by_side():
    tasks = [dk.Task("a", tower="sum"), dk.Task("b", tower="sum")]
    for architecture in ("mmoe", "omoe"):
        model = decided(tasks, architecture)
        small = dk.per_task(dk.condense(model), "b")
        assert_close(small(X)["b"], model(X)["b"], atol=1e-6)
    gate = dk.ChosenGate(initial_choices=[[6, 1], [4, 6], [1, 0]], num_gates=3)
    settings = {"experts": dk.DenseExperts(8, [5]), "side_by_side": True}
    model = dk.build_multitask_model(3, TASKS, gate=gate, **settings)
    for small in (dk.condense(model), dk.per_task(model, "b"), dk.per_task(model, "c")):
        for name, found in small(X).items():
            assert_close(found, model(X)[name], atol=1e-6)
    assert small.get_layer("mmoe").experts.num_experts == 2


def test_tasks_may_share_a_loss_and_have_any_name():
    loss = keras.losses.Huber(0.5)
    names = ["a/b", "c", "\u65e5"]
    model = decided([dk.Task(name, tower=(4,), loss=loss) for name in names])
    for name in names:
        small = dk.per_task(model, name)
        assert small.tasks[0].loss is loss
        assert_close(small(X)[name], model(X)[name], atol=1e-6)


def behind(change):
    """A model with more layers behind the towers."""
    model = decided()
    outputs = dict(model.output)
    return dk.MultitaskModel(model.input, change(model, outputs), tasks=model.tasks)


def shared(model, outputs):
    """A layer that all tasks share, and that is called twice."""
    dense = layers.Dense(1)
    return {name: dense(ops.tanh(dense(x))) for name, x in outputs.items()}


def nested(model, outputs):
    """A model of its own, which branches."""
    x = keras.Input((1,))
    inner = keras.Model(x, layers.Add()([layers.Dense(1)(x), x]))
    return {name: keras.Sequential([inner])(x) for name, x in outputs.items()}


def with_features(model, outputs):
    """A linear model beside the towers, as in wide and deep."""
    wide = layers.Dense(1, name="wide")(model.input)
    return {name: x + wide for name, x in outputs.items()}


@pytest.mark.parametrize("change", [shared, nested, with_features])
def test_layers_behind_the_towers_are_kept(change, tmp_path):
    model = behind(change)
    expected = {name: numpy(x) for name, x in model(X).items()}
    for each in (dk.condense(model), dk.distill(model, dk.DSelectKGate(2))):
        assert_close(each(X), expected, atol=1e-4)
    for name, values in expected.items():
        small = dk.per_task(model, name)
        assert small.get_layer("mmoe").experts.num_experts <= 2
        again = dk.per_task(reloaded(small, tmp_path), name)
        for each in (small, again):
            assert_close(each(X)[name], values, atol=1e-4)


def product(model, outputs):
    """Purchase after a click, as in ESMM."""
    outputs["c"] = layers.Multiply(name="both")([outputs["a"], outputs["c"]])
    return outputs


def of_mixtures(model, outputs):
    mixtures = model.get_layer("mmoe").output
    outputs["a"] += layers.Dense(1)(layers.Flatten(name="flat")(mixtures))
    return outputs


@pytest.mark.parametrize("tasks", [("b", "a"), 2])
def test_a_model_of_own_layers_is_taken_apart(tasks):
    """Towers that are layers, on mixtures of two levels."""
    inputs, gates = keras.Input((3,)), [dk.DSelectKGate(2) for _ in range(2)]
    below = dk.MoE(dk.DenseExperts(4, [5]), gates[0], name="below")
    mmoe = dk.MMoE(dk.DenseExperts(8, [5]), gates[1], tasks, name="mmoe")
    mixtures = mmoe(below(inputs))
    if tasks == 2:
        mixtures = dict(zip("ba", mixtures, strict=True))
    outputs = {name: layers.Dense(1)(mixture) for name, mixture in mixtures.items()}
    model = dk.MultitaskModel(inputs, outputs, tasks=[*outputs])
    below.gate.assign_expert_weights(np.eye(4)[2])
    mmoe.gate.assign_expert_weights(WEIGHTS[:2])
    for name, num_experts in (("b", 2), ("a", 1)):
        small = dk.per_task(model, name)
        assert_close(small(X)[name], model(X)[name], atol=1e-6)
        assert small.get_layer("mmoe").experts.num_experts == num_experts
        assert small.get_layer("below").experts.num_experts == 1
        assert len(small.layers) == 4


@pytest.mark.every_backend
@pytest.mark.parametrize("name", ["mask", "inputs_mask"])
def test_a_mask_that_is_an_argument_stays_one(name):
    inputs = keras.Input((4, 3)), keras.Input((4,), dtype="bool")
    layer = dk.MMoE(dk.DenseExperts(3, [2]), dk.TopKGate(1), ["a", "b"])
    outputs = {
        task: layers.Dense(1)(layers.GlobalAveragePooling1D()(mixture))
        for task, mixture in layer(inputs[0], **{name: inputs[1]}).items()
    }
    model = dk.MultitaskModel(inputs, outputs, tasks=["a", "b"])
    given = numbers((5, 4, 3)), numbers((5, 4), seed=1) > 0
    for task, values in model(given).items():
        small = dk.per_task(model, task)
        assert_close(small(given)[task], values, atol=1e-6)
        assert small.get_layer(layer.name).experts.num_experts == 1


GATES = {
    name: gate
    for name, gate in dk.gates.GATES.items()
    # The others need ids, tags or hidden outputs.
    if name not in ("attentive", "hash", "latent_skills", "reinforce", "tag")
}


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("name", sorted({*GATES} - {"chosen"}))
def test_a_per_example_gate_keeps_the_parameters_of_the_task(name, stacked):
    """All experts stay, since each of them may be used."""
    tasks = ["a", "b", "c"]
    gate, parts = GATES[name](), {"experts": 4, "stacked": stacked}
    model = dk.build_multitask_model(3, tasks, gate=gate, per_example=True, **parts)
    alone = dk.build_multitask_model(3, ["b"], gate=gate, per_example=True, **parts)
    gate = model.get_layer("mmoe").gate
    for i, variable in enumerate(gate.trainable_variables):
        variable.assign(numbers(variable.shape, seed=i))
    small, wanted = dk.per_task(model, "b"), model(X)
    wanted = wanted[:, 1:2] if stacked else wanted["b"]
    assert_close(small(X)["b"], wanted, rtol=1e-5, atol=1e-6)
    assert small.count_params() == alone.count_params() < model.count_params()


@pytest.mark.parametrize("make", [dk.SoftmaxGate, dk.GumbelSoftmaxGate])
def test_a_static_gate_that_uses_all_experts_keeps_them(make):
    model = dk.build_multitask_model(3, TASKS, gate=make(), experts=4)
    gate = model.get_layer("mmoe").gate
    gate.trainable_variables[0].assign(numbers((3, 4)))
    for task in TASKS:
        small = dk.per_task(model, task.name)
        assert_close(small(X)[task.name], model(X)[task.name], atol=1e-6)
        assert small.get_layer("mmoe").gate.count_params() < gate.count_params()


@pytest.mark.parametrize("architecture", ["cgc", "ple", "smear", "single_task"])
def test_other_architectures_give_their_task_too(architecture):
    model = dk.build_multitask_model(3, TASKS, architecture, gate=dk.SoftmaxGate())
    for task in TASKS:
        small = dk.per_task(model, task.name)
        assert_close(small(X)[task.name], model(X)[task.name], atol=1e-6)
        assert small.count_params() < model.count_params()


def by_hand(per_example=False, layer="gate", shape=(3,)):
    """A model without tasks, which reads each task's row of what a gate mixes."""
    inputs, gate = keras.Input(shape), dk.TopKGate(1, num_gates=3)
    if layer == "gate":
        experts = [layers.Dense(2)(inputs) for _ in range(4)]
        mixtures = gate(experts, inputs) if per_example else gate(experts)
    else:
        make = {"MoE": dk.MoE, "MMoE": partial(dk.MMoE, tasks=3)}[layer]
        gate = gate if layer == "MoE" else dk.TopKGate(1)
        parts = dk.DenseExperts(4, [2]), gate
        mixtures = make(*parts, per_example=per_example)(inputs)
    rows = mixtures
    if layer != "MMoE":
        before = (slice(None),) * len(shape)
        rows = [mixtures[(*before, row)] for row in (0, 1, -1)]
    named = zip("abc", rows, strict=True)
    return keras.Model(inputs, {name: layers.Dense(1)(x) for name, x in named})


@pytest.mark.parametrize("per_example", [False, True])
@pytest.mark.parametrize("layer", ["gate", "MMoE", "MoE"])
def test_a_model_by_hand_gives_a_model_of_one_task(per_example, layer):
    model = by_hand(per_example, layer)
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(numbers(variable.shape, seed=i))
    for name in "abc":
        small = dk.per_task(model, name)
        assert_close(small(X)[name], model(X)[name], atol=1e-6)
        sizes = [np.prod(v.shape) for v in small.trainable_variables]
        # Four experts and a logit for each; or one expert and its share.
        assert sum(sizes) == 3 + (4 * 8 + 3 * 4 if per_example else 8 + 1)


@pytest.mark.every_backend
def test_tokens_have_their_rows_on_the_axis_after_them():
    model = by_hand(True, "MoE", (5, 3))
    x = numbers((2, 5, 3))
    small = dk.per_task(model, "b")
    assert_close(small(x)["b"], model(x)["b"], atol=1e-6)
    assert small.count_params() < model.count_params()


def test_gates_with_inputs_of_their_own_keep_those_of_the_task():
    inputs, routing = keras.Input((3,)), keras.Input((2, 3))
    layer = dk.MMoE(dk.DenseExperts(4, [2]), dk.TopKGate(1), ["a", "b"], "by_gate")
    outputs = {k: layers.Dense(1)(x) for k, x in layer(inputs, routing).items()}
    model = dk.MultitaskModel([inputs, routing], outputs, tasks=["a", "b"])
    data = [X, numbers((5, 2, 3), seed=1)]
    small = dk.per_task(model, "b")
    assert_close(small(data)["b"], model(data)["b"], atol=1e-6)
    # The inputs of the other gate change nothing.
    data[1][:, 0] = 9.0
    assert_close(small(data)["b"], model(data)["b"], atol=1e-6)


def test_a_layer_that_reads_all_rows_keeps_them():
    inputs = keras.Input((3,))
    gate = dk.TopKGate(1, num_gates=2)
    mixtures = gate([layers.Dense(2)(inputs) for _ in range(4)])
    model = keras.Model(inputs, {"a": layers.Flatten()(mixtures), "b": mixtures[:, 1]})
    for name in "ab":
        assert_close(dk.per_task(model, name)(X)[name], model(X)[name], atol=1e-6)


def test_what_is_frozen_stays_frozen():
    model = decided()
    layer = model.get_layer("mmoe")
    for part in (layer.gate, layer.experts):
        part.trainable = False
        own = dk.per_task(model, "a").get_layer("mmoe")
        assert own.trainable
        assert not getattr(own, "gate" if part is layer.gate else "experts").trainable
        assert own.trainable_variables
        part.trainable = True


def with_one_bank():
    bank = dk.DenseExperts(4, [3])
    mixtures = [dk.MoE(bank, dk.SoftmaxGate()) for _ in range(2)]
    inputs = keras.Input((3,))
    return keras.Model(inputs, {"a": mixtures[1](mixtures[0](inputs))})


def stacked_behind(tasks):
    tasks = [dk.Task(each) if isinstance(each, str) else each for each in tasks]
    model = dk.build_multitask_model(3, tasks, gate=dk.TopKGate(2), stacked=True)
    outputs = layers.Rescaling(2.0, name="scale")(model.output)
    return dk.MultitaskModel(model.input, outputs, tasks=model.tasks)


test_what_cannot_be_taken_apart_is_refused = refusals(
    (lambda: dk.per_task(decided(), "d"), "no task of the name 'd'"),
    (
        dk.per_task,
        r"dict of outputs by task name.*type Subclassed",
        (subclassed(), "a"),
    ),
    (dk.per_task, "share a part .*'experts'", (with_one_bank(), "a")),
    (dk.per_task, r"no task .* 'd'\. Its tasks: a, b, c\.", (by_hand(), "d")),
    (
        lambda: dk.per_task(dk.build_multitask_model(3, TASKS, gate="dselect_k"), "a"),
        "2 selectors are not bin",
    ),
    (
        dk.per_task,
        r"'c' must read no other task\. Received: .* the layers both do\.",
        (behind(product), "c"),
    ),
    (dk.per_task, r"'a' must .* the layers flat do", (behind(of_mixtures), "a")),
    (
        dk.per_task,
        r"layers behind it read all tasks\. Received: an output of the layer 'scale'",
        *((stacked_behind(each), "c") for each in (TASKS, TASKS[::2], "abc")),
    ),
)
