"""Train many copies of one model, on JAX side by side as one program.

A job has its own draw of the data, initial weights and settings: the learning rate, the
weight decay and what its gate reads. All of them are variables, so that the program is
compiled once. Between epochs, gates are set on the host.
"""

import abc
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.ops import keep_top_k
from research.engine.side_by_side import (
    concatenated,
    in_lanes,
    make_program,
    set_numbers,
    train_side_by_side,
)

NO_DECAY = ["bias", "gamma", "beta"]  # Only the kernels of layers decay.


class Trainer(abc.ABC):
    """Trains copies of a model on draws of a problem.

    Args:
        batch_size: Examples in a step.
        epochs: The number of epochs, after each of which the model is evaluated.
    """

    def __init__(self, batch_size, epochs):
        self.batch_size, self.epochs = batch_size, epochs
        self.starts: dict[int, Any] = {}
        self.tables: dict[int, Any] = {}

    @abc.abstractmethod
    def build(self) -> tuple:
        """Make a compiled model, its gate, and what its settings are: `Settings`."""

    @abc.abstractmethod
    def splits(self, job) -> list:
        """The inputs and labels of a job, for training, validation and test."""

    @abc.abstractmethod
    def order(self, job) -> np.ndarray:
        """The training rows of each epoch of a job, `(epochs, rows)`."""

    @abc.abstractmethod
    def numbers(self, arm, job, part) -> dict[str, float]:
        """The `Settings`, rate and decay of a job after a part of the training."""

    def start(self, seed):
        """The state of the model with the initial weights of a seed."""
        if seed not in self.starts:
            keras.utils.set_random_seed(seed)
            model, gate, settings = self.build()
            if not self.starts:
                self.model, self.gate, self.settings = model, gate, settings
                self.program = make_program(model, self.batch_size)
            self.starts[seed] = self.program.read([model])
        return self.starts[seed]

    def train(self, arm, tables, jobs):
        """Train an `Arm`, some jobs at a time.

        Args:
            arm: An `Arm`.
            tables: A dict of `Table` by seed.
            jobs: A list of `Job`.

        Returns:
            For each job an array with a row for each error or number that is measured,
            on validation, on test and of the model, and a column for each epoch.
        """
        self.tables = tables
        return in_lanes(lambda lanes: self._train(arm, lanes), jobs)

    def _train(self, arm, jobs):
        state = concatenated([self.start(job.seed) for job in jobs])
        # The data of the jobs one below the other.
        each = [self.splits(job) for job in jobs]
        train, *held_out = map(concatenated, zip(*each, strict=True))
        lanes = np.arange(len(jobs))[:, None]
        rows = [lanes * len(y) + np.arange(len(y)) for _, y in each[0]]
        orders = np.stack([self.order(job) for job in jobs], axis=1)
        changes = [self.changes(arm, job) for job in jobs]
        program = self.program

        def prepare(state, epoch):
            for i, job in enumerate(jobs):
                if epoch in changes[i]:
                    program.write(self.model, state, i)
                    for change in changes[i][epoch]:
                        change(self, job)
                    state = program.replace(state, i)
            own = [self.numbers(arm, job, epoch / self.epochs) for job in jobs]
            return set_numbers(program, state, self.settings.numbers, own)

        _, found = train_side_by_side(
            program,
            state,
            train,
            orders + lanes * len(each[0][0][1]),
            list(zip(held_out, rows[1:], strict=True)),
            prepare,
            self.measured,
        )
        logs = [[*map(self.error, of[1:3]), *of[3]] for of in found]
        return np.transpose(logs, (2, 1, 0))

    def error(self, logs):
        """The error of the copies of the model, by its logs."""
        return logs["loss"]

    def measured(self, state) -> list:
        """What is measured of the copies of the model."""
        return []

    def changes(self, arm, job):
        """Changes to the model of a job, by the epoch before which they are made.

        In a short training, an epoch may have several, each of them once.
        """
        found: dict[int, dict] = {}
        for part, change in arm.more["events"].items():
            passed = job.settings.get(part, part) * self.epochs
            epoch = min(round(passed), self.epochs - 1)
            found.setdefault(epoch, {})[change] = None
        return found


def best_epoch(validation, test, counts: Any = True):
    """The epoch with the lowest validation error among those that count.

    Returns:
        Its number, and its errors on validation and test, which are infinite if none is
        finite.
    """
    losses = np.where(np.isfinite(validation) & counts, validation, np.inf)
    best = int(losses.argmin())
    found = np.isfinite(losses[best]) and np.isfinite(test[best])
    return best, float(losses[best]), float(test[best]) if found else np.inf


def make_optimizer(model, excluded):
    """AdamW, of which each job sets the weight decay; some variables have none."""
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.0)
    optimizer.exclude_from_weight_decay(excluded, NO_DECAY)
    optimizer.build(model.trainable_variables)
    optimizer.weight_decay = optimizer.add_variable((), name="weight_decay")
    return optimizer


def falling(progress):
    """The factor of the learning rate: 1, and in the last fifth falling to 0.2.

    Its last epoch begins before the end: of 30 epochs, it has 0.33.
    """
    return float(min(1.0, (1.05 - progress) / 0.25))


def keep(weights, k):
    """Give the weight of all experts to the k with the largest weights."""
    kept = ops.where(keep_top_k(weights, k) > -float("inf"), weights, 0.0)
    total, left = (ops.sum(each, -1, keepdims=True) for each in (weights, kept))
    return kept * total / ops.maximum(left, 1e-9)
