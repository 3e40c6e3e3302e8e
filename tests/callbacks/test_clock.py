"""The part of a training that has passed, and the steps of gates in an epoch."""

import math

import keras
import numpy as np
import pytest
from helpers import model_of

import dselectk_keras as dk
from dselectk_keras.callbacks._clock import Clock

pytestmark = pytest.mark.backend_independent


def clock_at(epoch, epochs, steps, batch=0, start=(0, 0)):
    clock = Clock()
    first_epoch, first_batch = start
    clock.set(first_epoch, epochs, steps, first_batch)
    clock.set(epoch, epochs, steps, batch)
    return clock


@pytest.mark.parametrize(
    ("clock", "part", "count"),
    [
        (clock_at(0, 10, 4), 0.05, 0),
        (clock_at(0, 10, 4, 1), 0.05, 0),
        (clock_at(0, 10, 4, 2), 0.05, 1),
        # Three tenths of the training are 3 * 0.1, which is above 0.3 in binary.
        (clock_at(3, 10, 4), 0.1, 3),
        (clock_at(1, 3, 7), 1 / 3, 1),
        (clock_at(2, 4, None, 3), 0.25, 2),
        (clock_at(2, 4, 0), 0.25, 2),
    ],
)
def test_parts_of_a_training_are_counted(clock, part, count):
    assert clock.count(part) == count


@pytest.mark.parametrize(
    ("start", "part", "count"),
    [
        ((0, 0), 0.25, -1),
        ((1, 0), 0.25, 0),
        ((1, 1), 0.25, 1),
        ((2, 0), 0.25, 1),
        # Due at 0, 0.3 and 0.6 epochs. The one due at 0.9 waits for a step.
        ((1, 0), 0.075, 2),
        # More often than there are steps.
        ((0, 0), 0.01, -1),
    ],
)
def test_parts_a_step_before_the_start_are_counted(start, part, count):
    assert clock_at(3, 4, 4, start=start).count_before(part) == count
    if not start[1]:  # Without a length, a step is an epoch.
        wanted = math.floor((start[0] - 1) / 4 / part) if start[0] else -1
        assert clock_at(3, 4, None, start=start).count_before(part) == wanted


def test_the_first_batch_after_a_time_of_this_epoch_is_listed():
    clock = clock_at(1, 3, 4)
    assert [clock.batches_at(time) for time in (0.5, 1, 2, 2.5)] == [[]] * 4
    assert [clock.batches_at(time) for time in (1.25, 1.26, 1.9)] == [[1], [2], [4]]
    assert clock_at(1, 3, None).batches_at(1.5) == []


def shared_gate():
    """A model that calls a gate twice per step, and the gate."""
    moe = dk.MoE(dk.DenseExperts(4, [4]), dk.DSelectKGate(2))
    return model_of(lambda x: moe(moe(x)), 4), moe.gate


class Loop(keras.Model):
    """Calls a gate three times per step, which Keras does not know."""

    def __init__(self):
        super().__init__()
        self.moe = dk.MoE(dk.DenseExperts(4, [4]), dk.DSelectKGate(2))

    def call(self, inputs):
        for _ in range(3):
            inputs = self.moe(inputs)
        return inputs


def loop():
    model = Loop()
    model(np.ones((1, 4), "float32"))
    return model, model.moe.gate


def steps_of(model, gate, *times):
    """Answers of a clock at times `(step, epoch, steps, batch)`, one after another."""
    clock, found = Clock(), []
    for step, epoch, steps, *batch in times:
        gate.step.assign(step)
        clock.set(epoch, 8, steps, *batch, model=model)
        found.append(clock.steps_of(gate))
    return found


def test_steps_are_estimated_from_the_model_and_then_counted():
    found = steps_of(*shared_gate(), (0, 0, 5), (2, 0, 5, 1), (10, 1, 5))
    assert found == [10, 10, 10]
    # A loop is not seen before the first step.
    assert steps_of(*loop(), (0, 0, 5), (3, 0, 5, 1), (15, 1, 5)) == [5, 15, 15]
    # Every second step of the training calls the gate.
    assert steps_of(*loop(), (0, 0, 4), (2, 1, 4), (4, 2, 4)) == [4, 2, 2]


def test_steps_of_an_earlier_training_do_not_count():
    found = steps_of(*loop(), (500, 0, 5), (503, 0, 5, 1), (515, 1, 5))
    assert found == [5, 15, 15]
    # The same when it goes on in another process, from the first step on.
    assert steps_of(*loop(), (530, 2, 5), (533, 2, 5, 1))[1] == pytest.approx(15)
    # A training that is resumed has counted all of its steps.
    assert steps_of(*loop(), (30, 2, 5)) == [15]
    assert steps_of(*shared_gate(), (20, 2, 5)) == [10]


def test_another_training_begins_the_clock_anew():
    clock, (model, gate) = Clock(), loop()
    for start in (0, 15):
        for step, epoch in ((0, 0), (15, 1)):
            gate.step.assign(start + step)
            clock.set(epoch, 2, 5, model=model)
        assert (clock.start, clock.now, clock.steps_of(gate)) == (0, 1, 15)
    clock.restart()
    assert clock.now is None


def test_steps_of_data_without_a_length_are_known_after_an_epoch():
    assert steps_of(*loop(), (7, 0, None), (16, 1, None), (25, 2, 0)) == [0, 9, 9]
    assert steps_of(*loop(), (18, 2, None)) == [9]
