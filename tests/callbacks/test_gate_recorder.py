"""The recorder sees what the gates of any model do, at the steps asked for."""

import itertools
import warnings
from functools import partial

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_equal
from helpers import model_of, numbers, numpy, refusals, spread
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras.callbacks import _observe, gate_recorder

pytestmark = pytest.mark.backend_independent

# Five steps of four examples.
X, Y = numbers((20, 3)), numbers((20, 2), seed=1)


def make(gate=None, num_experts=4, per_example=False, architecture="mmoe"):
    parts = dk.DenseExperts(num_experts, [2]), gate or dk.DSelectKGate(2), per_example
    model = dk.build_multitask_model(3, ["a", "b"], architecture, *parts)
    model.compile(keras.optimizers.SGD(0.1))
    return model


def fit(model, recorder, epochs=1, y=Y, more=(), x=X):
    settings = {"verbose": 0, "callbacks": [recorder, *more]}
    model.fit(x, y, batch_size=4, epochs=epochs, **settings)
    return recorder.history


@pytest.fixture(scope="module")
def model():
    """A model for tests of when it is recorded, which train it on."""
    keras.utils.set_random_seed(0)  # With others, its gates may collapse.
    return make()


@pytest.mark.parametrize(
    ("every", "unit", "steps"),
    [
        (3, "steps", [0, 3, 6, 9, 10]),
        (1, "epochs", [0, 5, 10]),
        (2, "epochs", [0, 10]),
    ],
)
def test_records_before_every_so_often_and_at_the_end(model, every, unit, steps):
    model.get_layer("mmoe").gate.step.assign(0)
    history = fit(model, dk.GateRecorder(every, unit), epochs=2)
    assert history.steps.tolist() == steps
    assert history["mmoe"]["weights"].shape == (len(steps), 2, 4)


def test_another_fit_continues_the_count_and_a_new_model_begins_anew(model):
    model.get_layer("mmoe").gate.step.assign(0)
    recorder = dk.GateRecorder(every=3)
    fit(model, recorder)
    assert fit(model, recorder).steps.tolist() == [0, 3, 5, 8, 10]
    assert fit(make(), recorder).steps.tolist() == [0, 3, 5]


@pytest.mark.every_backend
def test_records_the_weights_of_that_step():
    gate = dk.DSelectKGate(2, entropy_reg=0.1)
    model, recorder = make(gate, num_experts=3), dk.GateRecorder(every=5)
    gate = model.get_layer("mmoe").gate
    seen = []

    class Copy(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(numpy(self.model.get_layer("mmoe").expert_weights()))

    record = fit(model, recorder, 2, more=[Copy()])["mmoe"]
    # Records 1 and 2 are made within an epoch, at its last step.
    assert_close(record["weights"][1:], seen, rtol=1e-5)
    report = gate.report()
    for name, value in report["penalties"].items():
        assert_close(record[f"penalty_{name}"][-1], value, rtol=1e-5)
    for name, value in report["selectors"].items():
        assert_close(record[name][-1], value, rtol=1e-5)
        assert value.shape == (2, 2)


@pytest.mark.every_backend
def test_a_step_within_an_epoch_sees_fresh_values():
    weights = fit(make(dk.SoftmaxGate()), dk.GateRecorder(every=1))["mmoe"]["weights"]
    assert len(weights) == 6
    assert all((a != b).any() for a, b in itertools.pairwise(weights))


@pytest.mark.every_backend
def test_the_logs_of_an_epoch_have_binary_and_experts(capsys):
    model, recorder = make(), dk.GateRecorder(every=1, unit="epochs")
    seen = []

    class After(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((logs["binary"], logs["experts"]))

    callbacks = [recorder, dk.DecideGates(), After()]
    log = model.fit(X, Y, epochs=2, verbose=2, callbacks=callbacks).history
    record = recorder.history["mmoe"]
    wanted = {"binary": record["binary"], "experts": record["active"]}
    for name, values in wanted.items():
        assert_close(log[name], values[1:].reshape(2, -1).mean(axis=1))
    assert log["binary"] == [0.0, 1.0]
    assert seen == list(zip(log["binary"], log["experts"], strict=True))
    assert "- binary: 1.0000 - experts: " in capsys.readouterr().out


def test_the_logs_have_the_load_of_each_expert_if_asked(tmp_path):
    model = make(dk.TopKGate(1), num_experts=3, per_example=True)
    (kernel,) = model.get_layer("mmoe").gate.trainable_variables
    # Task a: expert 0 or 2, by the sign of the first feature; task b: expert 1.
    logits = np.array(
        [[[0, 0, 1], [0, 0, 0]], [[0, -9, 0], [0, 9, 0]], np.zeros((2, 3))]
    )
    kernel.assign(logits.reshape(3, 6))
    model.get_layer("mmoe").gate.trainable = False
    probe = np.array([[-1, 1, 0], [1, 1, 0], [2, 1, 0], [3, 1, 0]], "float32")
    recorder = dk.GateRecorder(1, "epochs", probe, tmp_path / "h.npz", log_load=True)
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[recorder])
    history = model.history.history
    found = [history[f"mmoe/load_{expert}"] for expert in range(3)]
    # Of eight choices, 1, 4 and 3.
    assert_close(found, np.array([[1, 1], [4, 4], [3, 3]]) / 8)
    wanted = [[[0.25, 0, 0.75], [0, 1, 0]]] * 3
    for records in (recorder.history, dk.GateHistory.load(tmp_path / "h.npz")):
        assert_close(records["mmoe"]["load"], wanted)


def test_the_logs_have_the_mean_of_all_gates():
    records = {
        "a": {"active": np.array([1.0, 2.0]), "binary": np.array([[1.0, 0.0]])},
        "b": {"active": np.array([6.0])},
    }
    assert gate_recorder._means(records) == {"binary": 0.5, "experts": 3.0}


def test_the_probe_may_be_a_table():
    inputs = {name: keras.Input((1,), name=name) for name in "uvw"}
    encoder = keras.Model(inputs, layers.Concatenate()([*inputs.values()]))
    model = dk.build_multitask_model(
        encoder, 2, experts=4, gate=dk.TopKGate(2), per_example=True
    )
    model.compile("sgd")
    frame = pd.DataFrame(X, columns=list("uvw")).assign(other="no input")
    record = fit(model, dk.GateRecorder(probe=frame[:7]), x=frame)["mmoe"]
    weights = numpy(model.get_layer("mmoe").expert_weights(X[:7]))
    assert_close(record["weights"][-1], weights.mean(0), rtol=1e-5)


@pytest.mark.parametrize("per_example", [False, True], ids=["static", "per_example"])
def test_the_gates_of_tasks_and_between_levels_are_recorded(per_example):
    model = make(dk.TopKGate(2), per_example=per_example, architecture="ple")
    history = fit(model, dk.GateRecorder(probe=X[:7] if per_example else None))
    names = {"cgc_0": ["a", "b"], "cgc_0_shared": ["shared"], "cgc_1": ["a", "b"]}
    assert history.tasks == names
    below, above = (model.get_layer(f"cgc_{level}") for level in range(2))
    between = below(X[:7])
    looks_at = {
        "cgc_0": (below.gate, X[:7]),
        "cgc_0_shared": (below.shared_gate, X[:7]),
        "cgc_1": (above.gate, between[:, :2]),
    }
    for name, (gate, inputs) in looks_at.items():
        weights = numpy(gate.expert_weights(*([inputs] if per_example else [])))
        weights = weights.mean(axis=0) if per_example else weights
        weights = weights.reshape(len(names[name]), -1)
        assert_close(history[name]["weights"][-1], weights, rtol=1e-5, err_msg=name)
        assert_equal(history[name]["active"][-1], 2.0)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.mmoe = dk.MMoE(dk.DenseExperts(4, [2]), dk.SoftmaxGate(), ["a", "b"])
        self.heads = layers.Dense(1)

    def call(self, inputs, training=None):
        mixtures = self.mmoe(inputs, training=training)
        return ops.concatenate([self.heads(mixtures[name]) for name in "ab"], axis=1)


@pytest.mark.every_backend
def test_a_subclassed_model_is_recorded_once_it_is_built():
    model = Subclassed()
    model.compile("sgd", "mse")
    history = fit(model, dk.GateRecorder(every=2))
    # JAX and torch build the model before they call the recorder.
    assert history.steps.tolist() in ([2, 4, 5], [0, 2, 4, 5])
    assert history.tasks == {model.mmoe.name: ["a", "b"]}
    found = history[model.mmoe.name]["weights"][-1]
    assert_close(found, model.mmoe.expert_weights(), rtol=1e-5)


def test_bare_gates_and_gates_for_all_tasks_are_recorded():
    inputs = keras.Input((3,))
    shared = dk.MMoE(
        dk.DenseExperts(4, [2]), dk.SoftmaxGate(num_gates=1), 2, name="omoe"
    )
    experts = [*shared(inputs), layers.Dense(2)(inputs)]
    gate = dk.SoftmaxGate(name="gate")
    model = keras.Model(inputs, gate((experts, inputs)))
    model.compile("sgd", "mse")
    history = fit(model, dk.GateRecorder(probe=X))
    assert history.tasks == {"omoe": ["all tasks"], "gate": ["gate_0"]}
    assert history["omoe"]["weights"].shape == (2, 1, 4)
    expected = numpy(gate.expert_weights(X)).mean(axis=0)
    assert_close(history["gate"]["weights"][-1, 0], expected, rtol=1e-5)


@pytest.mark.every_backend
@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
def test_counts_steps_of_data_without_a_length():
    model, recorder, expected, end = make(), dk.GateRecorder(every=2), [], 0
    for _ in range(2):
        batches = ((X[i : i + 4], Y[i : i + 4]) for i in range(0, len(X), 4))
        model.fit(batches, verbose=0, callbacks=[recorder])
        # 5 more, or 6 if TensorFlow compiles: Keras trains on when data run out.
        begin, end = end, int(model.optimizer.iterations)
        expected += range(begin, end, 2)
    assert recorder.history.steps.tolist() == [*expected, end]


@pytest.mark.every_backend
def test_counts_steps_without_an_update():
    model, settings = make(), {"gradient_accumulation_steps": 4}
    model.compile(keras.optimizers.SGD(0.1, **settings))
    history = fit(model, dk.GateRecorder(every=3), epochs=2)
    assert int(model.optimizer.iterations) < 10
    assert history.steps.tolist() == [0, 3, 6, 9, 10]


def warned(call, text="Selector"):
    """The texts of warnings that begin so, and what the call gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", text)
        result = call()
    texts = [str(each.message) for each in caught]
    return [each for each in texts if each.startswith(text)], result


def test_warns_once_of_a_selector_on_a_code_without_an_expert():
    model = make(num_experts=3)
    gate = model.get_layer("mmoe").gate
    z, w, *_ = gate.get_weights()
    z[1, 0] = 5.0  # Both bits are one: the code of a fourth expert.
    gate.set_weights([z, w])
    texts, history = warned(lambda: fit(model, dk.GateRecorder(every=1)))
    assert [text[:33] for text in texts] == ["Selector 0 of task 'b' in 'mmoe' "]
    assert history["mmoe"]["reachable"][0, 1, 0] == 0.0


@pytest.mark.parametrize(("reachable", "warns"), [(0.0011, False), (0.0009, True)])
def test_warns_of_a_selector_with_less_than_a_thousandth_on_experts(reachable, warns):
    record = {"reachable": np.array([[1.0, reachable]])}
    texts, _ = warned(lambda: dk.GateRecorder()._warn("mmoe", ["a"], record))
    assert [text[:22] for text in texts] == ["Selector 1 of task 'a'"] * warns


# Weights of two tasks over four experts, at steps 0, 2, 4 and so on. An even share is
# 0.25, and an expert with less than a tenth of it is dead.
EVEN = [[0.25] * 4] * 2
DEAD = [[0.5, 0.3, 0.2, 0.0], [0.2, 0.4, 0.376, 0.024]]
LAST = [[0.5, 0.3, 0.2, 0.0], [0.2, 0.4, 0.374, 0.026]]
SAME = [[0.70, 0.3, 0.0, 0.0], [0.66, 0.34, 0.0, 0.0]]
NEAR = [[0.70, 0.3, 0.0, 0.0], [0.64, 0.36, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([EVEN, EVEN, DEAD, DEAD], "1 of 4 experts are dead"),
        ([EVEN, EVEN, DEAD, LAST], ""),  # Expert 3 lives at the end.
        ([EVEN, EVEN, EVEN, DEAD], ""),  # For too short a time.
        ([EVEN, DEAD], ""),  # Too few records.
        ([DEAD, DEAD, DEAD, DEAD], "1 of 4 experts are dead"),
        ([EVEN, EVEN, SAME, SAME], "all tasks have the same weights, and use 2"),
        ([EVEN, EVEN, NEAR, SAME], "2 of 4 experts are dead"),  # Tasks differ a little.
        ([SAME, EVEN, EVEN, EVEN], ""),  # All alike, and all experts used.
        ([NEAR, EVEN, np.nan * np.ones((2, 4)), SAME], ""),
    ],
)
def test_a_collapse_is_dead_experts_and_perhaps_tasks_that_agree(records, text):
    found = _observe.describe_collapse(2 * np.arange(len(records)), np.array(records))
    assert found.startswith(text) if text else not found


def test_a_single_gate_collapses_by_dead_experts_alone():
    one = np.array([EVEN, EVEN, SAME, SAME])[:, :1]
    assert _observe.describe_collapse(np.arange(4), one) == "2 of 4 experts are dead"


def test_collapse_is_looked_for_in_the_middle_and_at_the_end(model, monkeypatch):
    recorder, steps = dk.GateRecorder(1, "epochs"), []
    model.get_layer("mmoe").gate.step.assign(0)
    note = partial(monkeypatch.setattr, recorder, "_warn_of_collapse")
    note(lambda: steps.append(recorder._count_steps()))
    fit(model, recorder, epochs=4)
    assert steps == [10, 20]


@pytest.mark.parametrize("trainable", [True, False])
def test_warns_once_per_training_of_gates_that_collapse(trainable):
    gate = dk.SoftmaxGate(trainable=trainable)
    model = make(gate, per_example=True)
    model.get_layer("mmoe").gate.set_weights([np.tile([9.0, 0, 0, 0], (3, 2))])
    recorder = dk.GateRecorder(1, "epochs", probe=np.abs(X))
    for _ in range(2):
        texts, _ = warned(lambda: fit(model, recorder, 4), "Gates have collapsed")
        assert len(texts) == trainable
        # The weights of a frozen gate are given.
        found = "Gates have collapsed: mmoe: all tasks have the same weights, and use"
        assert all(text.startswith(found) for text in texts)


def test_a_static_sparse_gate_may_leave_experts_out():
    model = make(dk.ChosenGate(initial_choices=[0, 1]))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Gates have collapsed")
        fit(model, dk.GateRecorder(1, "epochs"), epochs=4)


def without_gates():
    plain = keras.Sequential([layers.Dense(2)])
    plain.compile("sgd", "mse")
    fit(plain, dk.GateRecorder())


test_what_cannot_be_recorded_is_refused = refusals(
    (dk.GateRecorder, "Received: every=0", {"every": 0}),
    (dk.GateRecorder, "unit='batches'", {"unit": "batches"}),
    (
        lambda: fit(make(per_example=True), dk.GateRecorder()),
        r"'mmoe' are per-example\. .* Set `probe` to",
    ),
    (without_gates, "no gates to record"),
)


class Doubled(keras.layers.Layer):
    """A layer of a user's own, which computes what its gate looks at."""

    def __init__(self):
        super().__init__()
        self.experts = [keras.layers.Dense(2) for _ in range(4)]
        self.gate = dk.TopKGate(2, name="gate")
        # As wide as the model's inputs, so that they would do in its place.
        self.look = keras.layers.Dense(3, "tanh", name="look")

    def call(self, x):
        return self.gate([expert(x) for expert in self.experts], self.look(2.0 * x))


class OwnModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.mixture = Doubled()

    def call(self, x):
        return self.mixture(x)


def nested():
    return model_of(lambda x: model_of(Doubled(), 3)(x + 1.0), 3)


def per_example_moe():
    return dk.MoE(dk.DenseExperts(4, [2]), dk.TopKGate(2), True, name="gate")


def routed():
    look, moe = layers.Dense(3, "tanh", name="look"), per_example_moe()
    return model_of(lambda x: moe(x, look(2.0 * x)), 3)


IDS = np.random.default_rng(0).integers(5, size=(20, 6))  # 0 is padding.


def tokens():
    table = layers.Embedding(5, 3, mask_zero=True, name="table")
    inputs = keras.Input((6,), dtype="int32")
    return keras.Sequential([inputs, table, per_example_moe()])


def what_the_gate_sees(build, model):
    named = {layer.name: layer for layer in model._flatten_layers()}
    if build is tokens:
        return numpy(named["table"].weights[0])[IDS[IDS > 0]]
    kernel, bias = map(numpy, named["look"].weights)
    x = X + 1.0 if build is nested else X
    return np.tanh(2.0 * x @ kernel + bias)


@pytest.mark.every_backend
@pytest.mark.filterwarnings("ignore:Gates counted no training step:UserWarning")
@pytest.mark.parametrize("build", [OwnModel, nested, routed, tokens])
def test_the_record_of_any_model_is_what_numpy_computes(build):
    model, inputs = build(), IDS if build is tokens else X
    outputs = model(inputs)
    (gate,) = (g for g in model._flatten_layers() if isinstance(g, dk.TopKGate))
    spread(gate)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    recorder = dk.GateRecorder(probe=inputs)
    fit(model, recorder, y=np.zeros(outputs.shape), x=inputs)
    logits = what_the_gate_sees(build, model) @ numpy(gate.trainable_weights[0])
    weights = np.where(logits >= np.sort(logits)[:, -2:-1], np.exp(logits), 0.0)
    wanted = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
    record = recorder.history["gate"]
    assert_close(record["weights"][-1, 0], wanted, rtol=1e-5)
    assert_equal(record["active"][-1], [2.0])


# As in pyproject.toml; `pytest.warns` forgets from which module it comes.
@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
def test_a_gate_that_counts_no_steps_is_reported():
    model, recorder = OwnModel(), dk.GateRecorder(every=2, probe=X)
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="no training step: gate. .* an argument `tra"):
        fit(model, recorder)
    assert not recorder.history.steps.any()


@pytest.mark.every_backend
def test_a_gate_called_twice_is_recorded_as_the_mean_of_its_calls():
    gate = dk.DSelectKGate(2, gamma=5.0, name="gate")
    experts = keras.Sequential([layers.Dense(8), layers.Reshape((4, 2))])
    model = model_of(lambda x: gate(experts(x), x) + gate(experts(x), -x), 3)
    spread(gate)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    history = fit(model, dk.GateRecorder(probe=X))
    each = [numpy(gate.expert_weights(probe)).mean(axis=0) for probe in (X, -X)]
    assert_close(history["gate"]["weights"][-1, 0], np.mean(each, axis=0), rtol=1e-5)


@pytest.mark.every_backend
def test_observing_changes_no_state():
    gate = dk.TopKGate(2, noise=True, seed=1)
    moe = dk.MoE(dk.DenseExperts(8, [2]), gate, per_example=True, dispatch=1.0)
    model = model_of(moe, 3)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    moe.num_dropped.assign(7)
    recorder = dk.GateRecorder(probe=X)
    recorder.set_model(model)
    before = [numpy(variable) for variable in model.variables]
    recorder.on_train_begin()
    recorder.on_epoch_begin(0)
    assert len(recorder.history.steps) == 1
    assert_equal(model.variables, before)


@pytest.mark.every_backend
@pytest.mark.backends("jax", reason="Others copy at once.")
def test_a_record_of_several_gates_is_copied_to_the_host_at_once(monkeypatch):
    import jax

    reads, device_get = [], jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda x: reads.append(x) or device_get(x))
    model = make(architecture="ple", per_example=True)
    records = _observe.observe(model, _observe.find_gates(model), X)
    assert [*reads[0]] == [*records]
    assert (len(reads), len(records)) == (1, 3)


def test_layers_of_one_name_are_told_apart():
    def inner():
        experts = [keras.Input((3,)), layers.Dense(8), layers.Reshape((4, 2))]
        return keras.Sequential([*experts, dk.TopKGate(1, name="gate")])

    model = model_of(lambda x: inner()(x) + inner()(x), 3)
    model.compile("sgd", "mse")
    assert list(fit(model, dk.GateRecorder()).tasks) == ["gate", "gate#1"]


@pytest.mark.every_backend
@pytest.mark.parametrize("per_example", [False, True])
def test_penalties_of_all_calls_of_a_gate_are_added_up(per_example):
    gate = dk.DSelectKGate(2, entropy_reg=0.5)
    moe = dk.MoE(dk.DenseExperts(4, [3]), gate, per_example=per_example, name="moe")
    model = model_of(lambda x: moe(moe(x)), 3)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    recorder = dk.GateRecorder(every=1, probe=X if per_example else None)
    fit(model, recorder, y=X)
    model(X, training=True)
    wanted = sum(map(numpy, model.losses))
    assert len(model.losses) == 2
    assert_close(recorder.history["moe"]["penalty_entropy"][-1], wanted, rtol=1e-5)
