"""A training that Keras' `BackupAndRestore` resumes ends as if it had gone on."""

import keras
import pytest
from checks import assert_equal
from helpers import numbers, refusals

import dselectk_keras as dk

# As in pyproject.toml; `pytest.warns` forgets from which module it comes.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
X, Y = numbers((24, 3)), numbers((24, 2), seed=1)
EPOCHS = 5  # Of three steps.


def make(gate, optimizer=None, **settings):
    """A model whose initial weights depend on how many were made before."""
    experts = dk.DenseExperts(4, [4, 3])
    model = dk.build_multitask_model(3, ["a", "b"], experts=experts, gate=gate)
    model.compile(optimizer or keras.optimizers.Adam(0.05), **settings)
    return model


class Die(keras.callbacks.Callback):
    """Ends a training in an epoch, as if its process was killed."""

    def __init__(self, event, epoch):
        super().__init__()
        setattr(self, event, self.die)
        self.wanted = epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def die(self, batch_or_epoch, logs=None):
        if self.epoch == self.wanted and batch_or_epoch in {1, self.epoch}:
            raise KeyboardInterrupt


def callbacks(folder, die, **kept):
    """The callbacks in the order of the documentation, and a death between them."""
    recorder = dk.GateRecorder(2, path=folder / "gates.npz")
    backup = keras.callbacks.BackupAndRestore(folder / "backup", **kept)
    return [recorder, dk.DecideGates(0.4), *die, backup], recorder


def train(build, folder, deaths=()):
    """Train to the end, with a new model and new callbacks after each death."""
    for seed, death in enumerate((*deaths, None)):
        keras.utils.set_random_seed(seed)
        model = build()
        die = [] if death is None else [Die(*death)]
        held, recorder = callbacks(folder, die)
        try:
            log = model.fit(
                *(X, Y, 8, EPOCHS),
                shuffle=False,
                verbose=0,
                validation_data=(X, Y),
                callbacks=held,
            )
        except KeyboardInterrupt:
            assert death is not None
    return model, recorder.history, log.history


def assert_same(found, wanted):
    (model, history, log), (other, whole, whole_log) = found, wanted
    assert_equal(model.variables, other.variables)
    assert_equal(model.optimizer.variables, other.optimizer.variables)
    for name, values in log.items():
        assert values == whole_log[name][-len(values) :], name
    assert history.steps.tolist() == whole.steps.tolist()
    assert history.events == whole.events
    assert_equal(history, dict(whole))


def annealed():
    gamma, entropy = dk.Ramp(1.0, 0.1, end=12), dk.Ramp(0.01, 0.1, end=12)
    return make(dk.DSelectKGate(2, gamma=gamma, entropy_reg=entropy))


def accumulating():
    # An epoch has three steps, and ends with a gradient that is not applied.
    settings = {"gradient_accumulation_steps": 2, "use_ema": True, "ema_momentum": 0.9}
    optimizer = keras.optimizers.Adam(0.05, **settings)
    return make(dk.DSelectKGate(1), keras.optimizers.LossScaleOptimizer(optimizer))


BATCH, END = "on_train_batch_begin", "on_epoch_end"


@pytest.mark.parametrize(
    ("build", "deaths"),
    [
        # Before, in and after the epoch of the decision, and more than once.
        (annealed, [(BATCH, 1), (BATCH, 2), (BATCH, 4)]),
        # The recorder has written its file, and nothing is backed up yet.
        pytest.param(
            *(annealed, [(END, 1), (END, 2)]), marks=pytest.mark.backend_independent
        ),
        (accumulating, [(BATCH, 2)]),
    ],
)
def test_a_resumed_training_ends_as_the_unbroken_one(build, deaths, tmp_path):
    whole = train(build, tmp_path / "whole")
    assert whole[0].get_layer("mmoe").gate.has_decided
    assert_same(train(build, tmp_path / "parts", deaths), whole)


def test_the_narrowing_of_per_example_gates_goes_on(tmp_path):
    def fit(folder, die=()):
        keras.utils.set_random_seed(0)
        gate = dk.baselines.SoftmaxSelectorGate(2)
        model = dk.build_multitask_model(3, 2, gate=gate, per_example=True)
        model.compile(keras.optimizers.Adam(0.05))
        held = [dk.DecideGates(0.8), *die, keras.callbacks.BackupAndRestore(folder)]
        model.fit(X, Y, 8, EPOCHS, shuffle=False, verbose=0, callbacks=held)
        return model

    whole = fit(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "parts", [Die(BATCH, 3)])
    resumed = fit(tmp_path / "parts")
    assert resumed.get_layer("mmoe").gate.has_decided
    assert_equal(resumed.get_weights(), whole.get_weights())


@pytest.mark.backend_independent
def test_records_are_kept_if_the_backup_is_and_go_on_without_a_file(tmp_path):
    for _ in range(2):
        model = annealed()
        held, recorder = callbacks(tmp_path, [], delete_checkpoint=False)
        model.fit(X, Y, 8, 2, shuffle=False, verbose=0, callbacks=held)
        assert recorder.history.steps.tolist() == [0, 2, 4, 6]
    # A new training replaces it.
    recorder = dk.GateRecorder(3, path=tmp_path / "gates.npz")
    annealed().fit(X, Y, 8, 1, verbose=0, callbacks=[recorder])
    assert dk.GateHistory.load(tmp_path / "gates.npz").steps.tolist() == [0, 3]
    recorder = dk.GateRecorder(2, path=tmp_path / "not written.npz")
    annealed().fit(X, Y, 8, epochs=3, initial_epoch=2, verbose=0, callbacks=[recorder])
    assert recorder.history.steps.tolist() == [0, 2, 3]


test_a_path_that_is_none_is_refused = refusals(
    *(
        (dk.GateRecorder, "`path` must be a path", {"path": path})
        for path in [3, ["a"], b"file"]
    )
)
