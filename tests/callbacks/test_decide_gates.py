"""Gates that decide: what is exact, what survives, and what is refused."""

import itertools
import re
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numpy as to_numpy
from helpers import refusals

import dselectk_keras as dk
from dselectk_keras.callbacks import DecideGates, GateRecorder
from dselectk_keras.models import condense

pytestmark = [
    pytest.mark.backend_independent,
    # As in pyproject.toml; `pytest.warns` forgets from which module they come.
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Even though the `tf.config:UserWarning"),
]
TASKS = ["a", "b", "c"]


def data(samples=64):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 4)).astype("float32")
    return x, (x @ rng.normal(size=(4, len(TASKS)))).astype("float32")


def compiled(gate, optimizer="adam", **kwargs):
    keras.utils.set_random_seed(1)
    experts = dk.DenseExperts(5, [3])
    model = dk.build_multitask_model(4, TASKS, gate=gate, experts=experts, **kwargs)
    model.compile(optimizer)
    return model


def fit(model, callbacks, epochs=4, **kwargs):
    x, y = data()
    kwargs = {"batch_size": 32, "verbose": 0, **kwargs}
    return model.fit(x, y, epochs=epochs, callbacks=callbacks, **kwargs)


def gate_of(model):
    return model.get_layer("mmoe").gate


OPTIMIZERS = [
    (lambda: keras.optimizers.Adam(1e-4), 1.0, 1),
    (lambda: keras.optimizers.Adam(0.1), 1e3, 4),
    (lambda: keras.optimizers.SGD(1e-3, momentum=0.9), 1e-3, 1),
    (lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1), 1e-3, 4),
]


# Every gate with each of what it looks at.
@pytest.mark.every_backend
@pytest.mark.parametrize("number", range(len(OPTIMIZERS)))
def test_all_selectors_are_binary_afterwards(number):
    optimizer, scale, epochs = OPTIMIZERS[number]
    make = (dk.DSelectKGate, dk.baselines.SoftmaxSelectorGate)[number % 2]
    per_example = number < 2
    model = compiled(make(2), optimizer(), per_example=per_example)
    x, y = data()
    model.fit(x, scale * y, 32, epochs=epochs, verbose=0, callbacks=[DecideGates(0.5)])
    gate = gate_of(model)
    assert gate.has_decided
    report = gate.report(x if per_example else None)
    assert_equal(report["selectors"]["binary"], 1.0)
    weights = to_numpy(report["weights"])
    assert ((weights > 0).sum(-1) <= 2).all()
    assert_close(weights.sum(-1), 1.0, atol=1e-6)


class Look(keras.callbacks.Callback):
    """Notes the weights at the beginning of each epoch."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def on_epoch_begin(self, epoch, logs=None):
        self.seen.append(to_numpy(gate_of(self.model).expert_weights()))


def test_the_k_largest_weights_are_kept():
    model, seen = compiled(dk.DSelectKGate(2)), []
    fit(model, [Look(seen), DecideGates(0.5), Look(seen)])
    before, after = seen[4:6]  # The decision is at the beginning of epoch 2 of 4.
    assert (before > 0).sum(-1).min() > 2
    order = np.argsort(-before, axis=-1)
    kept = np.take_along_axis(before, order[:, :2], axis=-1)
    wanted = np.zeros_like(before)
    np.put_along_axis(wanted, order[:, :2], kept / kept.sum(-1, keepdims=True), -1)
    assert_close(after, wanted, atol=1e-6)


def test_a_condensed_model_is_trained_with_the_same_callback():
    model = compiled(dk.TopKGate(2))
    fit(condense(model), [DecideGates(0.5)], epochs=2)
    with pytest.raises(ValueError, match="no gates with selectors"):
        fit(model, [DecideGates()])


class StopAfter(keras.callbacks.Callback):
    """Stops the training after an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = epoch >= self.epoch


@pytest.mark.filterwarnings("ignore:`build..` was called:UserWarning")
def test_gates_that_have_not_decided_or_cannot_are_reported():
    with pytest.warns(UserWarning, match="before the gates decided"):
        fit(compiled(dk.DSelectKGate(2)), [DecideGates(0.5), StopAfter(0)])
    model = WithoutTraining(dk.DSelectKGate(2))
    model.compile("adam", "mse")
    with pytest.warns(UserWarning, match="an argument `training`"):
        fit(model, [DecideGates(0.5)], epochs=4)
    model = Own(dk.DSelectKGate(2))
    model.unused = dk.DSelectKGate(2, name="unused")
    model.compile("adam", "mse")
    with pytest.warns(UserWarning, match="no training step: unused"):
        fit(model, [DecideGates(0.5), StopAfter(0)], epochs=8)


@pytest.mark.parametrize("per_example", [False, True])
def test_frozen_gates_stay_as_they_are(per_example):
    model = compiled(dk.DSelectKGate(2), per_example=per_example)
    gate_of(model).trainable = False
    model.compile("adam")
    kept = [each for each in gate_of(model).weights if each is not gate_of(model).step]
    before = [to_numpy(weight) for weight in kept]
    with pytest.warns(UserWarning, match="Frozen gates do not decide"):
        fit(model, [DecideGates(0.5)])
    assert_equal(kept, before)


def test_the_recorder_says_which_gates_have_not_decided(capsys):
    fit(compiled(dk.DSelectKGate(2)), [GateRecorder()], verbose=2)
    assert "6 of 6 selectors): they may use more than" in capsys.readouterr().out
    fit(compiled(dk.DSelectKGate(2)), [GateRecorder(), DecideGates()], verbose=2)
    assert "not decided" not in capsys.readouterr().out


def test_a_gate_whose_codes_belong_to_no_expert_decides():
    model = compiled(dk.DSelectKGate(2, unreachable=0.0), keras.optimizers.SGD(0.0))
    gate = gate_of(model)
    z, w, *_ = gate.get_weights()
    z[0] = 5.0  # Code 7 of 5 experts.
    gate.set_weights([z, w])
    assert not to_numpy(gate.expert_weights())[0].any()
    fit(model, [DecideGates(0.5)])
    weights = to_numpy(gate.expert_weights())
    assert_close(weights.sum(axis=-1), 1.0, rtol=1e-6)
    # Codes 3 and 4 are one and two bits away.
    assert_equal(np.flatnonzero(weights[0]), [3])


def after_epochs(read):
    """A callback, and the list of what a function gives after each epoch."""
    found, note = [], lambda *_: found.append(read())
    return keras.callbacks.LambdaCallback(on_epoch_end=note), found


class Watch(keras.callbacks.Callback):
    """Notes after each batch whether a gate has decided."""

    def __init__(self, gate_in, decided):
        super().__init__()
        self.gate_in = gate_in
        self.decided = decided

    def on_train_batch_end(self, batch, logs=None):
        # On JAX, asking for the model updates its variables.
        self.decided.append(self.gate_in(self.model).has_decided)


@pytest.mark.every_backend
def test_a_gate_that_a_model_calls_in_a_loop_decides_no_earlier():
    class Loop(Own):
        def call(self, inputs, training=None):
            for _ in range(4):
                inputs = self.mixture(inputs, training=training)
            return inputs

    model, decided = Loop(dk.DSelectKGate(2), True, units=4), []
    x, _ = data()
    model(x)
    model.compile("sgd", "mse")
    callbacks = [DecideGates(0.5), Watch(lambda m: m.mixture.gate, decided)]
    model.fit(x, x, 32, 8, 0, callbacks=callbacks)
    assert decided.index(True) == len(decided) // 2 - 1


def widths_of(gate):
    """A callback, and the list of the widths of a gate after each epoch."""
    return after_epochs(lambda: round(float(gate.width(gate.step)[0]), 3))


def test_a_later_fit_narrows_when_a_first_one_does():
    model = compiled(dk.DSelectKGate(2), per_example=True)
    fit(model, [], epochs=7, shuffle=False)
    watch, widths = widths_of(gate_of(model))
    # Two steps per epoch. It narrows in epochs 4 to 7, first to 0.01 ** (1 / 4).
    fit(model, [DecideGates(0.8), watch], epochs=10, shuffle=False)
    assert widths == [1, 1, 1, 1, 0.316, 0.1, 0.032, 0.01, 0.01, 0.01]
    assert_equal(gate_of(model).deciding, [14 + 8, 14 + 16])


def test_a_later_fit_that_is_resumed_narrows_in_time():
    model = compiled(dk.DSelectKGate(2), per_example=True)
    fit(model, [], epochs=20)
    with pytest.warns(UserWarning, match="before the gates decided"):
        fit(model, [DecideGates(0.8), StopAfter(4)], epochs=10)
    # Of ten epochs, four are left to decide in, at the beginning of the fifth three.
    watch, widths = widths_of(gate_of(model))
    fit(model, [DecideGates(0.8), watch], epochs=10, initial_epoch=5)
    assert widths == [0.1, 0.032, 0.01, 0.01, 0.01]


@pytest.mark.parametrize("per_example", [False, True])
def test_by_one_decides_at_the_end(per_example):
    model = compiled(dk.DSelectKGate(2), per_example=per_example)
    log = fit(model, [DecideGates(by=1.0)], epochs=2).history
    assert gate_of(model).has_decided
    if not per_example:
        first, last = log["kept_mass"]
        assert first < 1 == last


class Times(DecideGates):
    """Notes when it looks at the gates: epochs and batches."""

    def begin_epoch(self, model, epoch, epochs, steps_per_epoch, batch=0):
        self.times = [*getattr(self, "times", ()), (epoch, batch)]
        super().begin_epoch(model, epoch, epochs, steps_per_epoch, batch)


# After half an epoch of eight steps, or before the last step.
@pytest.mark.parametrize(("by", "due"), [(1 / 8, (0, 4)), (1.0, (3, 7))])
def test_gates_are_looked_at_in_each_epoch_where_it_is_due_and_at_the_end(by, due):
    decide = Times(by)
    fit(compiled(dk.DSelectKGate(2)), [decide], batch_size=8)
    assert decide.times == sorted([due, *((epoch, 0) for epoch in range(5))])


def test_per_example_gates_need_no_length_if_an_epoch_passes_before():
    model, decide = compiled(dk.DSelectKGate(2), per_example=True), DecideGates(0.5)
    gate, plans = gate_of(model), []
    for epoch in range(4):
        gate.step.assign(5 + 3 * epoch)  # It was trained before.
        decide.begin_epoch(model, epoch, 6, None)
        plans.append(to_numpy(gate.deciding).tolist())
    # Three steps per epoch. It narrows in the middle of the second to the third epoch.
    assert plans == [[0, 0], [9, 14], [9, 14], [9, 14]]


@pytest.mark.parametrize("batch_size", [4, 8, 64])
def test_a_static_gate_decides_within_a_single_epoch(batch_size):
    model, decided = compiled(dk.DSelectKGate(2)), []
    callbacks = [DecideGates(0.5), Watch(gate_of, decided)]
    fit(model, callbacks, epochs=1, batch_size=batch_size)
    half = [2 * i >= len(decided) for i in range(len(decided))]
    assert decided in (half, [True])


def test_static_gates_need_no_length_of_the_data():
    model = compiled(dk.DSelectKGate(2))
    decide = DecideGates(0.5)
    decide.set_model(model)
    decide.set_params({"epochs": 4, "steps": None})
    decide.on_train_begin()
    for epoch in range(3):
        assert not gate_of(model).has_decided
        decide.on_epoch_begin(epoch)
    assert gate_of(model).has_decided


def test_another_fit_plans_anew_and_a_resumed_one_does_not():
    model, decide = compiled(dk.DSelectKGate(2), per_example=True), DecideGates(0.5)
    decide.set_model(model)
    gate, plans = gate_of(model), []
    # 4 epochs; the same training from its second epoch; 12 other epochs; a single one.
    fits = [(4, 0, 0), (4, 1, 10), (4, 1, 10), (12, 0, 15), (12, 3, 45), (1, 0, 50)]
    for epochs, epoch, step in fits:
        gate.step.assign(step)
        decide.set_params({"epochs": epochs, "steps": 10})
        decide.on_train_begin()
        decide.on_epoch_begin(epoch)
        plans.append(to_numpy(gate.deciding).tolist())
    wanted = [[0, 0], [10, 20], [10, 20], [0, 0], [45, 75], [45, 55]]
    assert plans == wanted


def test_a_later_fit_does_not_follow_the_plan_of_one_that_was_stopped():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    models = [compiled(dk.DSelectKGate(2), per_example=True) for _ in range(2)]
    for model, decide in zip(models, ([], [DecideGates()]), strict=True):
        with pytest.raises(KeyboardInterrupt):
            fit(model, [*decide, Stop()], shuffle=False)
        fit(model, [], epochs=5, shuffle=False)
    assert_equal(*(model.get_weights() for model in models))


class Own(keras.Model):
    """A model of a user, whose `call` may lack the argument `training`."""

    def __init__(self, gate, per_example=False, units=3):
        super().__init__()
        self.mixture = dk.MoE(dk.DenseExperts(4, [units]), gate, per_example)

    def call(self, inputs, training=None):
        return self.mixture(inputs, training=training)


class WithoutTraining(Own):
    def call(self, inputs):
        return self.mixture(inputs)


@pytest.mark.traced
@pytest.mark.every_backend
@pytest.mark.parametrize("per_example", [False, True])
def test_a_subclassed_model_that_fit_builds_decides(per_example):
    model = Own(dk.DSelectKGate(2), per_example)
    model.compile("adam", "mse")
    fit(model, [DecideGates(0.5)], epochs=4)
    gate = model.mixture.gate
    assert gate.has_decided
    if per_example:  # It narrows during two steps.
        assert to_numpy(gate.deciding).tolist() == [2, 4]


@pytest.mark.every_backend
def test_a_gate_that_is_built_too_late_is_refused():
    model = Own(dk.DSelectKGate(2))
    model.compile("adam", "mse")
    if keras.backend.backend() == "tensorflow":
        # Other backends build the model before the first epoch.
        with pytest.raises(ValueError, match="Call the model on a batch"):
            fit(model, [DecideGates(0.5)], epochs=1)
    model(data()[0])
    fit(model, [DecideGates(0.5)], epochs=1)
    assert model.mixture.gate.has_decided


@pytest.mark.parametrize("make", [dk.DSelectKGate, dk.baselines.SoftmaxSelectorGate])
def test_a_gate_with_nan_stays_as_it_is(make):
    gate = gate_of(compiled(make(2)))
    z, *others = gate.get_weights()
    z[1] = np.nan
    gate.set_weights([z, *others])
    gate.decide()
    assert_equal(gate.get_weights(), [z, *others])


def test_the_decision_is_logged_printed_and_noted_in_the_history(capsys):
    model = compiled(dk.DSelectKGate(2), keras.optimizers.SGD(0.0))
    gate = gate_of(model)
    mass = np.sort(to_numpy(gate.expert_weights()))[:, 3:].sum(-1).mean()
    recorder, losses = GateRecorder(every=100), [4.0, 0.25, 2.0, 1.0]
    set_loss = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(val_task_loss=losses[epoch])
    )
    callbacks = [set_loss, DecideGates(0.5), recorder]
    log = fit(model, callbacks, verbose=2).history
    assert_close(log["kept_mass"], [mass, mass, 1, 1], rtol=1e-6)
    kept = f"{100 * mass:.0f} %"
    assert recorder.history.events == {"mmoe": [(4, f"decided, {kept} kept")]}
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "The gates" in x)
    choices = gate.chosen_experts().choices.tolist()
    chosen = " and ".join(str(sorted(own)) for own in choices)
    assert line == (
        f"The gates decided in epoch 3: {gate.name!r} keeps {kept} of its weight, on "
        f"experts {chosen}. `val_task_loss` was 0.25 in the epoch before, and 2 in "
        "this one."
    )
    # It is no news in a later training.
    fit(model, callbacks, verbose=2)
    assert "The gates decided" not in capsys.readouterr().out
    assert len(recorder.history.events["mmoe"]) == 1


@pytest.mark.parametrize("name", ["val_task_loss", "val_loss", "task_loss"])
def test_the_loss_of_held_out_data_is_told_before_others_and_without_penalties(
    name, capsys
):
    model = compiled(dk.DSelectKGate(2), keras.optimizers.SGD(0.0))
    names = ["val_task_loss", "val_loss", "task_loss", "loss"]
    values = {each: float(i) for i, each in enumerate(names)}
    given = {each: values[each] for each in names[names.index(name) :]}
    set_logs = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(given)
    )
    fit(model, [set_logs, DecideGates(0.5)], verbose=2)
    assert (
        f"`{name}` was {values[name]:.4g} in the epoch before"
        in capsys.readouterr().out
    )


def test_a_loss_is_compared_with_that_of_the_same_data(capsys):
    x, y = data()
    for by, epoch in ((0.25, 1), (0.75, 3)):
        model = compiled(dk.DSelectKGate(2), keras.optimizers.SGD(0.0))
        held_out = {"validation_data": (x, 10 * y), "validation_freq": 2}
        log = fit(model, [DecideGates(by)], verbose=2, **held_out).history["task_loss"]
        before, after = (f"{log[i]:.4g}" for i in (epoch - 1, epoch))
        assert (
            f"`task_loss` was {before} in the epoch before, and {after} in this one."
        ) in capsys.readouterr().out
    model = compiled(dk.DSelectKGate(2))
    log = fit(model, [DecideGates()], epochs=1, verbose=2).history
    line = f"`task_loss` was {log['task_loss'][0]:.4g} in this one."
    assert line in capsys.readouterr().out


def test_the_decision_of_per_example_gates_is_told_too(capsys):
    model = compiled(dk.baselines.SoftmaxSelectorGate(2), per_example=True)
    recorder = GateRecorder(probe=data()[0])
    log = fit(model, [recorder, DecideGates(0.5)], verbose=2).history
    assert "kept_mass" not in log
    assert recorder.history.events == {"mmoe": [(4, "decided")]}
    text = "decided in epoch 2: .* uses at most 2 experts. `task_loss` was "
    assert re.search(text, capsys.readouterr().out)


def test_a_decision_of_many_gates_is_told_in_short(capsys):
    keras.utils.set_random_seed(0)
    model = dk.build_multitask_model(4, 6, gate=dk.DSelectKGate(1), experts=5)
    model.compile("adam")
    x, y = data()
    fits = {"epochs": 2, "callbacks": [DecideGates()], "batch_size": 32}
    model.fit(x, np.tile(y, 2), verbose=0, **fits)
    assert not capsys.readouterr().out
    gate = gate_of(model)
    gate.choices.assign(-np.ones((6, 1)))
    model.fit(x, np.tile(y, 2), verbose=2, **fits)
    used = np.unique(gate.chosen_experts().choices).size
    assert f" of its weight, on {used} of 5 experts. `" in capsys.readouterr().out


def fit_endless():
    model = compiled(dk.DSelectKGate(2), per_example=True)
    batches = (data(16) for _ in itertools.count())
    model.fit(batches, epochs=2, verbose=0, callbacks=[DecideGates()])


def decide_unbuilt():
    model, callback = Own(dk.DSelectKGate(2)), DecideGates(by=0.5)
    for epoch in (0, 1, 2):
        callback.begin_epoch(model, epoch, epochs=8, steps_per_epoch=2)


def begin_without_a_length(per_example):
    model = compiled(dk.DSelectKGate(2), per_example=bool(per_example))
    DecideGates().begin_epoch(model, 0, 1, None)


test_what_cannot_decide_is_refused = refusals(
    (DecideGates, "above 0 and at most 1", 0, 1.1, -1, "a", None),
    # Data without a length need the number of steps.
    (fit_endless, "`steps_per_epoch`"),
    *((partial(begin_without_a_length, each), "`steps_per_epoch`") for each in (0, 1)),
    # From the epoch in which a gate may begin to decide.
    (decide_unbuilt, r"is not built.* Received: epoch 3 of 8"),
)
