"""Train many runs of one model, on JAX side by side as one program.

A run has its own draw of the data, initial weights and settings: the learning rate, the
weight decay and what its gate reads. All of them are variables, so that the program is
compiled once. Between epochs, gates are set on the host.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from pruned_bottom import build_pruned_bottom

from dselectk_keras import build_multitask_model
from dselectk_keras.experts import DenseExperts, Experts
from dselectk_keras.models import Task
from dselectk_keras.program import Program
from experiments.settings import Settings
from gate_comparison.apart import build_apart

# What gates may read, at first.
FIRST = {"entropy": 0.0, "gamma": 1.0, "noise": 0.0, "bias_rate": 0.0}
LANES = 4  # Runs that are trained side by side.
NO_DECAY = ["bias", "gamma", "beta"]  # Only the kernels of layers decay.


@dataclasses.dataclass(frozen=True)
class Form:
    """A model that is trained.

    Args:
        make_gate: A function of k, n and `Settings` that returns a gate.
        wide: Whether a shared bottom has the units of all experts, not of k.
        pruned: Whether each task keeps as many of them as k experts have.
        apart: Whether towers read the experts of a learned gate side by side.
        normalized: Whether the outputs of experts are normalized over the batch, with
            a swish after it, as in HoME.
        options: Options of the architecture.
    """

    make_gate: Callable | None = None
    wide: bool = False
    pruned: bool = False
    apart: bool = False
    normalized: bool = False
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class History(NamedTuple):
    """What is measured after each epoch, arrays (epochs,)."""

    validation: np.ndarray
    test: np.ndarray
    units: np.ndarray  # The mean number of units that a task reads.
    most: np.ndarray  # The largest one.


class Trainer:
    """Trains a model with one kind of gate on a problem.

    Args:
        problem: A `Problem`.
        tables: Its data, a `Table` for each draw.
        seeds: The seed of each draw, for initial weights, orders and choices.
        form: The `Form` of the model.
        progress: Called with a number of runs when they are trained.
    """

    def __init__(self, problem, tables, seeds, form, progress=lambda _: None):
        self.problem, self.tables, self.seeds = problem, tables, list(seeds)
        self.progress, self.form = progress, form
        self.k = problem.num_nonzeros
        self.rows = [len(x) for x, _ in tables[0].splits]
        steps = problem.steps
        if self.rows[0] < steps:
            raise SystemExit(
                f"There must be at least {steps} training examples, because an epoch "
                f"has {steps} steps. Received: {self.rows[0]} of {sum(self.rows)} "
                "rows. Three of five rows are training examples."
            )
        self.batch_size = problem.batch_size or self.rows[0] // steps
        # The draws one below the other.
        splits = zip(*(table.splits for table in tables), strict=True)
        self.data: Any = [
            tuple(map(np.concatenate, zip(*draws, strict=True))) for draws in splits
        ]
        self.starts = []
        for seed in self.seeds:
            keras.utils.set_random_seed(seed)
            self.model = self._build()
            self.program = Program(self.model, self.batch_size)
            self.starts.append(self.program.read([self.model]))
        self.gate: Any = None
        if form.make_gate:
            self.gate = self.model.get_layer("mmoe").gate

    def _build(self):
        problem, table, form = self.problem, self.tables[0], self.form
        n, units, gate = problem.num_experts, problem.units, None
        self.settings = Settings(**FIRST)
        self.settings.num_steps = problem.epochs * problem.steps
        if form.make_gate:
            gate = form.make_gate(self.k, n, self.settings)
        else:
            n, units = 1, self.units_of_bottom
        num_inputs = table.splits[0].x.shape[1]
        # Outputs of binary tasks are logits here.
        entropy = keras.losses.BinaryCrossentropy(from_logits=True)
        look = {"tower": problem.tower, "metrics": ()}
        tasks = [
            Task(f"task_{i}", loss=entropy if is_binary else None, **look)
            for i, is_binary in enumerate(table.binary)
        ]
        experts = DenseExperts(n, [units] * problem.layers)
        if form.normalized:
            experts = Experts(normalized_expert(units, problem.layers), n)
        elif problem.expert:
            experts = Experts(problem.expert(units), n)
        if gate is not None:
            gate = gate.with_num_gates(len(tasks))
            # So that its variables are those of the model.
            gate.settings = self.settings
        options = {"label_average": "labels"}
        if form.pruned:
            model = build_pruned_bottom(num_inputs, tasks, experts, **options)
        elif form.apart:
            model = build_apart(num_inputs, tasks, experts, gate, **options)
        else:
            model = build_multitask_model(
                num_inputs,
                tasks,
                "mmoe" if form.make_gate else "shared_bottom",
                experts=experts,
                gate="softmax" if gate is None else gate,
                stacked=True,
                **options,
                **form.options,
            )
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.0)
        own = [] if gate is None else model.get_layer("mmoe").gate.trainable_variables
        optimizer.exclude_from_weight_decay(own, NO_DECAY)
        optimizer.build(model.trainable_variables)
        optimizer.weight_decay = optimizer.add_variable((), name="weight_decay")
        model.compile(optimizer)
        return model

    @property
    def units_of_bottom(self):
        """The units of a shared bottom: those of k experts, or of all."""
        wide = self.form.wide
        return self.problem.units * (self.problem.num_experts if wide else self.k)

    def multiplications(self, units):
        """What serving one task takes, if it reads so many units."""
        has_gate, problem = self.gate is not None, self.problem
        width = problem.units if has_gate else self.units_of_bottom
        *below, last = self._products(width)
        # A bottom needs all units of the layers below the last one.
        experts = (units / width if has_gate else 1) * sum(below) + units / width * last
        side_by_side = self.form.apart or self.form.options.get("side_by_side")
        read = width if has_gate and not side_by_side else units
        hidden, *_ = [*problem.tower, 1]
        return experts + read * hidden + (hidden > 1) * hidden

    @functools.cache  # noqa: B019
    def _products(self, units):
        """The multiplications of the layers of an expert, for one example."""
        widths = [self.data[0][0].shape[1]] + [units] * self.problem.layers
        if self.problem.expert is None:
            return [a * b for a, b in itertools.pairwise(widths)]
        expert = self.problem.expert(units)
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
        if self.form.pruned:
            return ops.sum(self.model.get_layer("units").mask, axis=-1)
        return ops.full((1,), float(self.units_of_bottom))

    def train(self, runs):
        """Train a list of `Run`, some at a time; return a `History` for each."""
        found = []
        for first in range(0, len(runs), LANES):
            lanes = runs[first : first + LANES]
            # The program is for one number of runs.
            padded = lanes + lanes[:1] * (LANES - len(lanes))
            found.extend(self._train(padded)[: len(lanes)])
            self.progress(len(lanes))
        return [History(*each) for each in found]

    def _train(self, runs):
        program, epochs = self.program, self.problem.epochs
        draws = np.array([run.draw for run in runs])
        starts = [self.starts[draw] for draw in draws]
        state = keras.tree.map_structure(lambda *each: np.concatenate(each), *starts)
        orders = [np.random.default_rng(self.seeds[draw]) for draw in draws]
        held_out = [draws[:, None] * rows + np.arange(rows) for rows in self.rows[1:]]
        events, measured = [self.events(run) for run in runs], []
        for epoch in range(epochs):
            for i, run in enumerate(runs):
                if epoch in events[i]:
                    program.write(self.model, state, i)
                    events[i][epoch](self, run)
                    state = program.replace(state, i)
            state = self._set(state, runs, epoch / epochs)
            order = np.stack(list(map(self._order, orders)))
            order += draws[:, None] * self.rows[0]
            state, _ = program.train(state, order, self.data[0])
            losses = []
            for data, rows in zip(self.data[1:], held_out, strict=True):
                state, found = program.test(state, rows, data, rows.shape[1])
                losses.append(found.logs["task_loss"] / len(self.tables[0].binary))
            units = np.asarray(program.compute(self._units, state))
            measured.append([*losses, units.mean(axis=1), units.max(axis=1)])
        return np.transpose(measured, (2, 1, 0))

    def _set(self, state, runs, progress):
        """Set the settings of an epoch: variables of the model and the optimizer."""
        optimizer = self.model.optimizer
        settings = [
            run.settings
            | {"rate": run.settings["rate"] * falling(progress)}
            | {"noise": run.settings["noise"] * max(0.0, 1 - 2 * progress)}
            for run in runs
        ]
        variables = {"rate": optimizer.learning_rate, "decay": optimizer.weight_decay}
        variables |= self.settings.numbers
        values = {
            id(variable): np.array([own[name] for own in settings], "float32")
            for name, variable in variables.items()
        }
        return self.program.assign(state, values)

    def events(self, run):
        """What is done to the model of a run, by the epoch before which it is done."""
        epochs = self.problem.epochs
        return {
            min(round(part * epochs), epochs - 1): action
            for part, action in run.events.items()
        }

    def _order(self, rng):
        return rng.permutation(self.rows[0])[: self.problem.steps * self.batch_size]


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
