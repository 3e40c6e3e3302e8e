"""Train many copies of one model, on JAX side by side as one program.

A job has its own draw of the data, initial weights and settings: the learning rate, the
weight decay and what its gate reads. All of them are variables, so that the program is
compiled once. Between epochs, gates are set on the host.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras import build_multitask_model
from dselectk_keras.experts import DenseExperts, Experts
from dselectk_keras.models import Task
from research.benches.gate_comparison.apart import build_apart
from research.benches.pruned_bottom import build_pruned_bottom
from research.engine.settings import Settings
from research.engine.side_by_side import (
    concatenated,
    in_lanes,
    make_program,
    set_numbers,
    train_side_by_side,
)

# What gates may read, at first.
FIRST = {"entropy": 0.0, "gamma": 1.0, "noise": 0.0, "bias_rate": 0.0}
NO_DECAY = ["bias", "gamma", "beta"]  # Only the kernels of layers decay.


class History(NamedTuple):
    """Measurements after each epoch, arrays (epochs,)."""

    validation: np.ndarray
    test: np.ndarray
    units: np.ndarray  # The mean number of units that a task reads.
    most: np.ndarray  # The largest one.


class Trainer:
    """Trains a model with one kind of gate on a problem.

    The architecture is `"mmoe"`, with experts that are mixed; `"normalized"`, if their
    outputs are normalized over the batch, with a swish after it, as in HoME;
    `"side_by_side"`, or for a gate that learns its choice, `"apart"`; or without a
    gate, a `"shared_bottom"` with the units of k experts, a `"wide_bottom"` with those
    of all, or a `"pruned_bottom"`, of which each task keeps as many as k experts have.

    Args:
        problem: A `Problem`.
        tables: Its data: a dict of `Table`, by the seed of the draw, which is also that
            of initial weights, orders and choices.
        gate: A function of k, n and `Settings` that returns a gate, if there is one.
        architecture: One of those above.
    """

    def __init__(self, problem, tables, gate, architecture):
        self.problem, self.tables, self.architecture = problem, tables, architecture
        self.make_gate, self.k = gate, problem.num_nonzeros
        self.best: dict[str, list] = {}  # The settings that arms took, draw by draw.
        first, steps = next(iter(tables.values())), problem.steps
        self.binary = first.binary
        self.rows = [len(x) for x, _ in first.splits]
        if self.rows[0] < steps:
            raise SystemExit(
                f"There must be at least {steps} training examples, because an epoch "
                f"has {steps} steps. Received: {self.rows[0]} of {sum(self.rows)} "
                "rows. Three of five rows are training examples."
            )
        self.batch_size = problem.batch_size or self.rows[0] // steps
        # The draws one below the other.
        splits = zip(*(table.splits for table in tables.values()), strict=True)
        self.data: Any = list(map(concatenated, splits))
        self.places = {seed: place for place, seed in enumerate(tables)}
        self.starts = []
        for seed in tables:
            keras.utils.set_random_seed(seed)
            self.model = self._build()
            self.program = make_program(self.model, self.batch_size)
            self.starts.append(self.program.read([self.model]))
        self.gate: Any = self.model.get_layer("mmoe").gate if gate else None

    def _build(self):
        problem, architecture = self.problem, self.architecture
        n, units, gate = 1, self._width, None
        self.settings = Settings(**FIRST)
        self.settings.num_steps = problem.epochs * problem.steps
        if self.make_gate:
            n = problem.num_experts
            gate = self.make_gate(self.k, n, self.settings)
        num_inputs = self.data[0][0].shape[1]
        # Outputs of binary tasks are logits here.
        entropy = keras.losses.BinaryCrossentropy(from_logits=True)
        look = {"tower": problem.tower, "metrics": ()}
        tasks = [
            Task(f"task_{i}", loss=entropy if is_binary else None, **look)
            for i, is_binary in enumerate(self.binary)
        ]
        experts = DenseExperts(n, [units] * problem.layers)
        if architecture == "normalized":
            experts = Experts(normalized_expert(units, problem.layers), n)
        elif problem.expert:
            experts = Experts(problem.expert(units), n)
        if gate is not None:
            gate = gate.with_num_gates(len(tasks))
            # So that its variables are those of the model.
            gate.settings = self.settings
        options: Any = {"label_average": "labels"}
        if architecture == "pruned_bottom":
            model = build_pruned_bottom(num_inputs, tasks, experts, **options)
        elif architecture == "apart":
            model = build_apart(num_inputs, tasks, experts, gate, **options)
        else:
            if architecture == "side_by_side":
                options["side_by_side"] = True
            model = build_multitask_model(
                num_inputs,
                tasks,
                "shared_bottom" if gate is None else "mmoe",
                experts=experts,
                gate="softmax" if gate is None else gate,
                stacked=True,
                **options,
            )
        own = [] if gate is None else model.get_layer("mmoe").gate.trainable_variables
        model.compile(make_optimizer(model, own))
        return model

    @property
    def _width(self):
        """The units of an expert, or of a bottom: those of k experts, or of all."""
        if self.make_gate:
            return self.problem.units
        is_narrow = self.architecture == "shared_bottom"
        return self.problem.units * (self.k if is_narrow else self.problem.num_experts)

    def multiplications(self, units):
        """Multiplications for one example of a task that reads so many units."""
        has_gate, width, problem = self.gate is not None, self._width, self.problem
        *below, last = self._products
        # A bottom needs all units of the layers below the last one.
        experts = (units / width if has_gate else 1) * sum(below) + units / width * last
        side_by_side = self.architecture in ("apart", "side_by_side")
        read = width if has_gate and not side_by_side else units
        hidden, *_ = [*problem.tower, 1]
        return experts + read * hidden + (hidden > 1) * hidden

    @functools.cached_property
    def _products(self):
        """The multiplications of the layers of an expert, for one example."""
        widths = [self.data[0][0].shape[1]] + [self._width] * self.problem.layers
        if self.problem.expert is None:
            return [a * b for a, b in itertools.pairwise(widths)]
        expert = self.problem.expert(self._width)
        expert.build((None, widths[0]))
        layers = [layer for layer in expert.layers if hasattr(layer, "kernel")]
        places = [math.prod(layer.output.shape[1:-1]) for layer in layers]
        sizes = [math.prod(layer.kernel.shape) for layer in layers]
        return [a * b for a, b in zip(places, sizes, strict=True)]

    def _units(self):
        """The number of units that each task reads, a tensor (tasks,)."""
        if self.gate is not None:
            used = ops.cast(self.gate.expert_weights() > 0, "float32")
            return self.problem.units * ops.sum(used, axis=-1)
        if self.architecture == "pruned_bottom":
            return ops.sum(self.model.get_layer("units").mask, axis=-1)
        return ops.full((1,), float(self._width))

    def train(self, arm, jobs):
        """Train an `Arm`, some jobs at a time; return a `History` for each."""
        found = in_lanes(lambda lanes: self._train(arm, lanes), jobs)
        return [History(*each) for each in found]

    def _train(self, arm, jobs):
        program, epochs = self.program, self.problem.epochs
        draws = np.array([self.places[job.seed] for job in jobs])
        rngs = [np.random.default_rng(job.seed) for job in jobs]
        events = [self.events(arm, job) for job in jobs]

        def prepare(state, epoch):
            for i, job in enumerate(jobs):
                if epoch in events[i]:
                    program.write(self.model, state, i)
                    for action in events[i][epoch]:
                        action(self, job)
                    state = program.replace(state, i)
            settings = [self._settings(job, epoch / epochs) for job in jobs]
            return set_numbers(program, state, self.settings.numbers, settings)

        def measure(state):
            units = np.asarray(program.compute(self._units, state))
            return units.mean(axis=1), units.max(axis=1)

        rows = [draws[:, None] * count + np.arange(count) for count in self.rows[1:]]
        _, found = train_side_by_side(
            program,
            concatenated([self.starts[draw] for draw in draws]),
            self.data[0],
            (self._order(rngs) + draws[:, None] * self.rows[0] for _ in range(epochs)),
            list(zip(self.data[1:], rows, strict=True)),
            prepare,
            measure,
        )
        measured = [
            [*(log["task_loss"] / len(self.binary) for log in logs), *units]
            for _, *logs, units in found
        ]
        return np.transpose(measured, (2, 1, 0))

    def _settings(self, job, progress):
        """The settings of a job after a part of the training."""
        own = {**FIRST, "gamma": 3.0, **job.settings}
        own["rate"] *= falling(progress)
        own["noise"] *= max(0.0, 1 - 2 * progress)
        return own

    def events(self, arm, job):
        """Changes to the model of a job, by the epoch before which they are made.

        In a short training, an epoch may have several, each of them once.
        """
        epochs, found = self.problem.epochs, {}
        for part, action in arm.more["events"].items():
            epoch = min(round(job.settings.get(part, part) * epochs), epochs - 1)
            found.setdefault(epoch, {})[action] = None
        return found

    def _order(self, rngs):
        size = self.problem.steps * self.batch_size
        return np.stack([rng.permutation(self.rows[0])[:size] for rng in rngs])


def make_optimizer(model, excluded):
    """AdamW, of which each job sets the weight decay; some variables have none."""
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.0)
    optimizer.exclude_from_weight_decay(excluded, NO_DECAY)
    optimizer.build(model.trainable_variables)
    optimizer.weight_decay = optimizer.add_variable((), name="weight_decay")
    return optimizer


def normalized_expert(units, layers):
    """An expert whose output is normalized over the batch, with a swish after it."""
    hidden = [keras.layers.Dense(units, "relu") for _ in range(layers - 1)]
    # A shorter memory than by default, for short trainings.
    norm = keras.layers.BatchNormalization(momentum=0.9)
    last = [keras.layers.Dense(units), norm, keras.layers.Activation("swish")]
    return keras.Sequential([*hidden, *last])


def falling(progress):
    """The factor of the learning rate: 1, and in the last fifth falling to 0.2.

    Its last epoch begins before the end: of 30 epochs, it has 0.33.
    """
    return float(min(1.0, (1.05 - progress) / 0.25))
