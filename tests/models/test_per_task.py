"""One task alone is served by its own experts, and gives what it gave."""

import gzip

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
def test_a_task_alone_gives_what_it_gave(name, num_experts):
    model = decided()
    small = dk.per_task(model, name)
    assert [task.name for task in small.tasks] == [name]
    assert small.task_losses.label_average == "labels"
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


@pytest.mark.every_backend
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


def behind(change, tasks=TASKS, **settings):
    """A model with more layers behind the towers."""
    model = decided(tasks, **settings)
    outputs = dict(model.output)
    return dk.MultitaskModel(model.input, change(model, outputs), tasks=model.tasks)


def scaled(model, outputs):
    """Several layers, in units of the labels; one of them with weights."""
    outputs["a"] = layers.Rescaling(100.0, 500.0)(layers.Dense(1)(outputs["a"]))
    outputs["c"] = layers.Rescaling(2.0)(outputs["c"])
    return outputs


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


@pytest.mark.parametrize("change", [scaled, shared, nested, with_features])
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
    small.compile("sgd")
    assert np.isfinite(small.fit(X, X[:, :1], verbose=0).history["loss"]).all()


def product(model, outputs):
    """Purchase after a click, as in ESMM."""
    outputs["c"] = layers.Multiply(name="both")([outputs["a"], outputs["c"]])
    return outputs


def of_mixtures(model, outputs):
    mixtures = model.get_layer("mmoe").output
    outputs["a"] += layers.Dense(1)(layers.Flatten(name="flat")(mixtures))
    return outputs


def of_own_layers(tasks):
    """Towers that are layers, on mixtures of two levels."""
    inputs, gate = keras.Input((3,)), dk.DSelectKGate(2)
    below = dk.MoE(dk.DenseExperts(4, [5]), gate, name="below")(inputs)
    bank = dk.DenseExperts(8, [5])
    mixtures = dk.MMoE(bank, dk.DSelectKGate(2), tasks, name="mmoe")(below)
    pairs = (
        mixtures.items()
        if isinstance(mixtures, dict)
        else zip("ab", mixtures, strict=True)
    )
    outputs = {name: layers.Dense(1)(mixture) for name, mixture in pairs}
    tasks = [dk.Task(name) for name in outputs]
    model = dk.MultitaskModel(inputs, outputs, tasks=tasks)
    model.get_layer("below").gate.assign_expert_weights(np.eye(4)[2])
    gate = model.get_layer("mmoe").gate
    gate.assign_expert_weights(WEIGHTS[: gate.num_gates])
    return model


@pytest.mark.parametrize("tasks", [("b", "a"), 2])
def test_a_model_of_own_layers_is_taken_apart(tasks):
    model = of_own_layers(tasks)
    expected = {name: numpy(x) for name, x in model(X).items()}
    sizes = {}
    for name, values in expected.items():
        small = dk.per_task(model, name)
        assert_close(small(X)[name], values, atol=1e-6)
        sizes[name] = small.get_layer("mmoe").experts.num_experts
        assert small.get_layer("below").experts.num_experts == 1
        assert len(small.layers) == 4
    assert sorted(sizes.values()) == [1, 2]


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


def test_gates_of_lists_are_taken_apart():
    inputs = keras.Input((3,))
    experts = [layers.Dense(2)(inputs) for _ in range(4)]
    gates = {name: dk.TopKGate(1) for name in "ab"}
    outputs = {name: layers.Dense(1)(gate(experts)) for name, gate in gates.items()}
    model = dk.MultitaskModel(inputs, outputs, tasks=[dk.Task("a"), dk.Task("b")])
    for name in "ab":
        small = dk.per_task(model, name)
        assert_close(small(X)[name], model(X)[name], atol=1e-6)
        assert len(small.layers) == 4  # With one expert.


@pytest.mark.backends("tensorflow", reason="TensorFlow looks up strings.")
def test_a_table_goes_from_its_file_to_the_model_of_each_task(tmp_path):
    pytest.importorskip("pandas")
    # A wheel has no scripts.
    train, read_file = pytest.importorskip("train"), pytest.importorskip("user_table")
    read_file = read_file.read_file

    # As UCI's Adult comes: packed, without a header, with spaces and question marks.
    rng = np.random.default_rng(0)
    ages = rng.integers(17, 90, 60)
    kinds = rng.choice(["Private", "State-gov", "?"], 60)
    rows = [
        f"{age}, {kind}, {20 + age // 3}, {'>50K' if age > 50 else '<=50K'}\n"
        for age, kind in zip(ages, kinds, strict=True)
    ]
    path, out = tmp_path / "adult.data.gz", tmp_path / "run"
    path.write_bytes(gzip.compress("".join([*rows, "\n"]).encode()))
    targets = ["column_2", "column_3"]
    options = ["--table", path, "--targets", *targets, "--epochs", 2, "--units", 4]
    train.main([*map(str, options), "--quiet", "--out", str(out)])
    model, frame = keras.saving.load_model(out / "model.keras"), read_file(path)
    expected = model.predict(frame, verbose=0)
    assert expected["column_2"].mean() > 10  # Not the units of the towers.
    for name in targets:
        found = dk.per_task(model, name).predict(frame, verbose=0)
        assert_close(found[name], expected[name], rtol=1e-4)


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


def by_hand(per_example=False, layer="gate", inputs=None):
    """A model without tasks, which reads each task's row of what a gate mixes."""
    inputs = keras.Input((3,)) if inputs is None else inputs
    if layer == "gate":
        gate = dk.TopKGate(1, num_gates=3)
        experts = [layers.Dense(2)(inputs) for _ in range(4)]
        mixtures = gate(experts, inputs) if per_example else gate(experts)
    elif layer == "MMoE":
        layer = dk.MMoE(dk.DenseExperts(4, [2]), dk.TopKGate(1), 3, per_example)
        return keras.Model(inputs, _named(layer(inputs)))
    else:
        gate = dk.TopKGate(1, num_gates=3)
        mixtures = dk.MoE(dk.DenseExperts(4, [2]), gate, per_example)(inputs)
    axis = len(inputs.shape) - 1
    rows = [mixtures[(slice(None),) * axis + (row,)] for row in (0, 1, -1)]
    return keras.Model(inputs, _named(rows))


def _named(rows):
    return {name: layers.Dense(1)(x) for name, x in zip("abc", rows, strict=True)}


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
    model = by_hand(True, "MoE", keras.Input((5, 3)))
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


def undecided():
    return dk.build_multitask_model(3, TASKS, gate=dk.DSelectKGate(2))


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
    (dk.per_task, r"no task .* 'd'\. Its tasks: a, b, c\.", (by_hand(), "d")),
    (dk.per_task, "2 selectors are not bin", (undecided(), "a")),
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
