"""A training that is interrupted and resumed ends as if it had not been."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy

import dselectk_keras as dk
from dselectk_keras import (
    Batches,
    Checkpoints,
    DecideGates,
    GateRecorder,
    OnceDecided,
    Task,
)

X, Y = numbers((24, 3)), numbers((24, 2), seed=1)
EPOCHS = 4


def make(gate, optimizer=None, **settings):
    """A model whose initial weights depend on how many were made before."""
    model = dk.build_multitask_model(
        3,
        [Task("a"), Task("b")],
        experts=dk.DenseExperts(4, [4, 3], dropout=0.2),
        gate=gate,
        **settings,
    )
    model.compile(optimizer or keras.optimizers.Adam(0.05))
    return model


class Stop(keras.callbacks.Callback):
    """Ends training in the middle of an epoch, as Ctrl-C does."""

    def __init__(self, epoch):
        super().__init__()
        self.at = epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.epoch == self.at and batch == 1:
            raise KeyboardInterrupt


def fit(model, checkpoints, stop=None, epochs=EPOCHS, **settings):
    """Train, on data in an order of their own for each epoch."""
    return model.fit(
        Batches((X, Y), 8, seed=3, epoch=checkpoints.epoch),
        validation_data=(X, Y),
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[checkpoints, *([] if stop is None else [Stop(stop)])],
        **settings,
    )


def interrupted(make, callbacks, folder, stops):
    """Train to the end, with an interruption in each of these epochs."""
    for seed, stop in enumerate((*stops, None)):
        # The process that resumes draws other initial weights and seeds.
        keras.utils.set_random_seed(seed)
        model, held = make(), callbacks()
        checkpoints = Checkpoints(folder, held)
        try:
            fit(model, checkpoints, stop)
        except KeyboardInterrupt:
            continue
    return model, held, checkpoints


def assert_same(model, wanted):
    for found, want in (
        (model.variables, wanted.variables),
        (model.optimizer.variables, wanted.optimizer.variables),
    ):
        assert len(found) == len(want)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(numpy(a), numpy(b), err_msg=a.path)


def assert_same_history(found, wanted):
    assert found.steps.tolist() == wanted.steps.tolist()
    for layer, other in zip(found.tasks, wanted.tasks, strict=True):
        for name, values in wanted[other].items():
            np.testing.assert_array_equal(found[layer][name], values)


def assert_resumes(build, callbacks, folder, stops):
    """Check that interruptions change nothing; return the last callbacks."""
    wanted, held, whole = interrupted(build, callbacks, folder / "whole", ())
    model, resumed, parts = interrupted(build, callbacks, folder / "parts", stops)
    assert_same(model, wanted)
    assert parts.history == whole.history
    for a, b in zip(resumed, held, strict=True):
        if isinstance(a, GateRecorder):
            assert_same_history(a.history, b.history)
    return resumed


GATES = {
    "schedules": lambda: dk.DSelectKGate(
        2, gamma=dk.Ramp(1.0, 0.1, end=12), entropy_reg=dk.Ramp(0.01, 0.1, end=12)
    ),
    "noise": lambda: dk.TopKGate(2, noise=True, expert_dropout=0.3),
    "reinforce": dk.ReinforceGate,
}


@pytest.mark.parametrize("name", GATES)
def test_a_resumed_training_ends_with_the_same_weights(name, tmp_path):
    def build():
        return make(GATES[name](), per_example=False)

    def callbacks():
        return [GateRecorder(every=2)]

    assert_resumes(build, callbacks, tmp_path, (2,))


def test_gates_decide_as_without_an_interruption(tmp_path):
    def build():
        # An epoch has three steps, and ends with a gradient that is not applied.
        optimizer = keras.optimizers.Adam(
            0.05, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.9
        )
        scaled = keras.optimizers.LossScaleOptimizer(optimizer)
        return make(dk.DSelectKGate(1), scaled)

    def callbacks():
        stopping = keras.callbacks.EarlyStopping(
            "val_task_loss", patience=1, restore_best_weights=True
        )
        return [
            DecideGates(0.4),
            GateRecorder(every=2),
            OnceDecided(stopping),
        ]

    *_, once = assert_resumes(build, callbacks, tmp_path, (1, 2))
    assert 0 < once.epochs <= 3


def test_a_training_that_was_stopped_is_over(tmp_path):
    class StopNow(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    for steps in (3, 0):
        model = make(dk.DSelectKGate(2))
        before = numpy(model.optimizer.iterations)
        checkpoints = Checkpoints(tmp_path, [StopNow()])
        fit(model, checkpoints)
        assert numpy(model.optimizer.iterations) - before == 3, steps
        assert checkpoints.epoch == 1
    # The next training of the model begins with its first epoch.
    model.fit(X, Y, verbose=0, callbacks=[first := First()])
    assert first.epoch == 0


class First(keras.callbacks.Callback):
    epoch = None

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch if self.epoch is None else self.epoch


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
def test_the_last_two_are_kept_and_a_damaged_one_is_not_used(tmp_path):
    keras.utils.set_random_seed(0)
    wanted = make(dk.DSelectKGate(2))
    fit(wanted, Checkpoints(tmp_path))
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == ["epoch_000003.npz", "epoch_000004.npz"]
    content = bytearray(paths[1].read_bytes())
    content[len(content) // 2] ^= 1
    paths[1].write_bytes(content)
    model = make(dk.DSelectKGate(2))
    checkpoints = Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match=r"epoch_000004.npz is damaged.*epoch_000003"):
        epoch = checkpoints.epoch
    assert epoch == 3
    with pytest.warns(UserWarning, match="is damaged"):
        fit(model, checkpoints)
    assert_same(model, wanted)

    for path in paths:
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"epoch_000004.npz is damaged.*epoch_000003"):
        assert checkpoints.epoch
    assert [path.stat().st_size for path in paths] == [0, 0]


def test_a_write_that_fails_leaves_the_checkpoints_before(tmp_path, monkeypatch):
    fit(make(dk.DSelectKGate(2)), Checkpoints(tmp_path), epochs=2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(file, **arrays):
        file.write(b"half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.set_model(make(dk.DSelectKGate(2)))
    with pytest.raises(OSError, match="No space"):
        checkpoints.on_epoch_end(5)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("model", "callbacks", "text"),
    [
        (lambda: make(dk.DSelectKGate(1)), [], "of another model or optimizer"),
        (lambda: make(dk.DSelectKGate(2)), [DecideGates()], "DecideGates_0"),
    ],
)
def test_another_model_or_other_callbacks_are_refused(model, callbacks, text, tmp_path):
    fit(make(dk.DSelectKGate(2)), Checkpoints(tmp_path), epochs=1)
    with pytest.raises(ValueError, match=text):
        fit(model(), Checkpoints(tmp_path, callbacks))


def test_keras_hears_of_steps_only_if_a_callback_listens():
    heard = []
    listening = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: heard.append(batch)
    )
    silent = Checkpoints("unused", [DecideGates()])
    assert silent.on_train_batch_end.__func__ is (
        keras.callbacks.Callback.on_train_batch_end
    )
    Checkpoints("unused", [listening]).on_train_batch_end(3, {})
    assert heard == [3]
