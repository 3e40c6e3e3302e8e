"""The part of a training that has passed."""

import math
from typing import Any

from keras import ops

from dselectk_keras._keras import all_layers, calls_by_layer
from dselectk_keras.gates import Gate


class Clock:
    """Tells how much of a training has passed, whole or within an epoch.

    A training may go on in a later epoch (`initial_epoch`, `BackupAndRestore`), its
    model may have been trained before, its data may have no length, and `replicate`
    and `steps_per_execution` leave out batches. A gate counts its calls, of which a
    step of the training may make several.

    Attributes:
        now: The number of epochs that have passed, a fraction within an epoch. Within
            an epoch of unknown length it is that of the beginning.
        start: The `now` at which this process began with the training.
        epochs: The number of epochs of the training.
        steps: The number of steps per epoch, or `None`.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin another training."""
        self.now: Any = None
        self.start: Any = None
        self.epochs: Any = None
        self.steps: Any = None
        # The step of each gate at the start, and its calls per step in the model.
        self._first: dict[int, int] = {}
        self._calls: dict[int, int] = {}

    def set(
        self,
        epoch: int,
        epochs: int,
        steps: float | None,
        batch: int = 0,
        model: Any = None,
    ) -> None:
        """Set the time to that of an epoch or batch; `steps_of` needs the model."""
        now = epoch + (batch / steps if batch and steps else 0)
        if self.now is None or now < self.now:
            self.restart()
            self.start = now
            if model is not None:
                gates = all_layers(model, Gate)
                self._first = {id(gate): _step(gate) for gate in gates}
                self._calls = calls_by_layer(model)
        self.now, self.epochs, self.steps = now, epochs, steps or None

    def count(self, part: float) -> int:
        """Count how often a part of the training has passed."""
        return math.floor(self.now / self.epochs / part + 1e-9)

    def count_before(self, part: float) -> int:
        """Count how often a part had passed a step before the start, -1 for none."""
        before = self.start - 1 / (self.steps or 1)
        return max(-1, math.floor(before / self.epochs / part + 1e-9))

    def batches_at(self, time: float) -> list[int]:
        """List the first batch at or after a later time of this epoch, if any."""
        epoch = math.floor(self.now)
        if not (self.steps and self.now < time < epoch + 1):
            return []
        return [math.ceil((time - epoch) * self.steps - 1e-9)]

    def steps_of(self, gate: Any) -> float:
        """Estimate how many steps a gate counts in an epoch: 0 if it is not known."""
        step, first = _step(gate), self._first.get(id(gate), 0)
        if self.now > self.start and step > first:
            return (step - first) / (self.now - self.start)
        # It has counted nothing yet in this process.
        calls = self._calls.get(id(gate), 1)
        if self.start and self.steps:
            # A loop in the `call` of a model is not seen in the model.
            calls = max(calls, int(first / self.start / self.steps))
        if self.steps:
            return self.steps * max(1, calls)
        return first / self.start if self.start else 0.0


def _step(gate):
    return int(ops.convert_to_numpy(gate.step)) if gate.built else 0
