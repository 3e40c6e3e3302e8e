"""`fit` itself: several steps a call, and nothing that waits for the host in a step."""

import keras
import pytest
from checks import assert_close
from helpers import numbers

import dselectk_keras as dk

BACKEND = keras.backend.backend()
# Nine steps of four examples.
X, Y = numbers((36, 3)), numbers((36, 2), seed=1)


def fit(gate, callbacks, steps_per_execution=1, epochs=2):
    keras.utils.set_random_seed(0)
    experts = dk.DenseExperts(4, [2])
    model = dk.build_multitask_model(3, ["a", "b"], experts=experts, gate=gate)
    model.compile(keras.optimizers.SGD(0.1), steps_per_execution=steps_per_execution)
    settings = {"batch_size": 4, "shuffle": False, "verbose": 0}
    return model.fit(X, Y, epochs=epochs, callbacks=callbacks, **settings).history


@pytest.mark.traced
@pytest.mark.backends("tensorflow", "jax", reason="Keras runs torch step by step.")
def test_several_steps_a_call_work_with_every_callback():
    seen = []
    for steps in (1, 4):
        recorder = dk.GateRecorder(every=3)
        gate = dk.DSelectKGate(2, entropy_reg=dk.Ramp(1e-3, 1.0, end=18))
        history = fit(gate, [recorder], steps)
        seen.append((history["loss"], recorder.history["mmoe"]["weights"][-1]))
        # Records fall on the first call that is due, by the steps that were made.
        expected = range(0, 19, 3) if steps == 1 else [0, 4, 8, 13, 17, 18]
        assert recorder.history.steps.tolist() == list(expected)
    assert_close(*seen, rtol=1e-5)


def test_callbacks_work_with_every_setting_of_an_optimizer_at_once():
    keras.utils.set_random_seed(0)
    experts, recorder = dk.DenseExperts(8, [2]), dk.GateRecorder(every=4)
    model = dk.build_multitask_model(3, 2, experts=experts, gate=dk.DSelectKGate(1))
    settings = {"use_ema": True, "ema_momentum": 0.9, "gradient_accumulation_steps": 2}
    optimizer = keras.optimizers.Adam(0.1, **settings)
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer))
    settings = {"batch_size": 4, "shuffle": False, "verbose": 0}
    model.fit(X, Y, epochs=4, callbacks=[dk.DecideGates(0.5), recorder], **settings)
    assert recorder.history.steps.tolist() == [*range(0, 36, 4), 36]
    assert (recorder.history["mmoe"]["active"][-1] == 1).all()


@pytest.mark.backends("jax", reason="JAX lets its reads be counted.")
def test_the_number_of_steps_does_not_change_how_often_the_host_reads(monkeypatch):
    array = type(keras.ops.ones(1))
    read, reads = array._value, []

    def counted(self):
        reads.append(self)
        return read.fget(self)

    monkeypatch.setattr(array, "_value", property(counted))
    counts = []
    for size in (36, 8):
        monkeypatch.setitem(globals(), "X", X[:size])
        monkeypatch.setitem(globals(), "Y", Y[:size])
        reads.clear()
        ramp = dk.Ramp(1e-3, 1.0, end=18)
        gate = dk.DSelectKGate(2, entropy_reg=ramp, expert_dropout=0.1)
        fit(gate, [dk.GateRecorder(every=1, unit="epochs")])
        counts.append(len(reads))
    assert counts[0] == counts[1] > 0
