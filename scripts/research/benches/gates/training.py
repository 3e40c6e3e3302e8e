"""The models with static gates, and their training."""

import functools
import itertools
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras import MMoE, MultitaskModel, build_multitask_model
from dselectk_keras.experts import DenseExperts, Experts
from dselectk_keras.gates.record import record_call
from dselectk_keras.models import Task
from dselectk_keras.models.towers import add_towers
from research.benches.pruned_bottom import build_pruned_bottom
from research.benches.training import Trainer, falling, make_optimizer
from research.engine.settings import Settings

# What gates may read, at first.
FIRST = {"entropy": 0.0, "gamma": 1.0, "noise": 0.0, "bias_rate": 0.0}


class GateTrainer(Trainer):
    """Trains a model with one kind of gate on a problem.

    The architecture is `"mmoe"`, with experts that are mixed; `"normalized"`, if their
    outputs are normalized over the batch, with a swish after it, as in HoME;
    `"side_by_side"`, or for a gate that learns its choice, `"apart"`; or without a
    gate, a `"shared_bottom"` with the units of k experts, a `"wide_bottom"` with those
    of all, or a `"pruned_bottom"`, of which each task keeps as many as k experts have.

    Args:
        problem: A `Problem`.
        table: A `Table` of it: others have as many rows, columns and tasks.
        gate: A function of k, n and `Settings` that returns a gate, if there is one.
        architecture: One of those above.
    """

    def __init__(self, problem, table, gate, architecture):
        self.problem, self.architecture = problem, architecture
        self.make_gate, self.k, self.binary = gate, problem.num_nonzeros, table.binary
        # The settings that arms took, draw by draw.
        self.best: dict[str, list] = {}
        self.rows, *others = (len(x) for x, _ in table.splits)
        if self.rows < problem.steps:
            raise SystemExit(
                f"There must be at least {problem.steps} training examples, because an "
                f"epoch has {problem.steps} steps. Received: {self.rows} of "
                f"{self.rows + sum(others)} rows. Three of five rows are training "
                "examples."
            )
        self.num_inputs = table.splits[0][0].shape[1]
        batch_size = problem.batch_size or self.rows // problem.steps
        super().__init__(batch_size, problem.epochs)

    def build(self):
        """A model that is compiled, its gate and its settings."""
        problem, architecture = self.problem, self.architecture
        n, gate, settings = 1, None, Settings(**FIRST)
        settings.num_steps = problem.epochs * problem.steps
        if self.make_gate:
            n = problem.num_experts
            gate = self.make_gate(self.k, n, settings)
        # Outputs of binary tasks are logits here.
        entropy = keras.losses.BinaryCrossentropy(from_logits=True)
        look = {"tower": problem.tower, "metrics": ()}
        tasks = [
            Task(f"task_{i}", loss=entropy if is_binary else None, **look)
            for i, is_binary in enumerate(self.binary)
        ]
        experts = DenseExperts(n, [self._width] * problem.layers)
        if architecture == "normalized":
            experts = Experts(normalized_expert(self._width, problem.layers), n)
        elif problem.expert:
            experts = Experts(problem.expert(self._width), n)
        if gate:
            gate = gate.with_num_gates(len(tasks))
            # So that its variables are those of the model.
            gate.settings = settings
        options: Any = {"label_average": "labels"}
        given = self.num_inputs, tasks
        if architecture == "pruned_bottom":
            model = build_pruned_bottom(*given, experts, **options)
        elif architecture == "apart":
            model = build_apart(*given, experts, gate, **options)
        else:
            if architecture == "side_by_side":
                options["side_by_side"] = True
            options |= {"experts": experts, "gate": gate or "softmax", "stacked": True}
            kind = "mmoe" if gate else "shared_bottom"
            model = build_multitask_model(*given, kind, **options)
        gate = model.get_layer("mmoe").gate if gate else None
        own = gate.trainable_variables if gate else []
        model.compile(make_optimizer(model, own))
        return model, gate, settings

    @property
    def _width(self):
        """The units of an expert, or of a bottom: those of k experts, or of all."""
        if self.make_gate:
            return self.problem.units
        is_narrow = self.architecture == "shared_bottom"
        return self.problem.units * (self.k if is_narrow else self.problem.num_experts)

    def multiplications(self, units):
        """Multiplications for one example of a task that reads so many units."""
        has_gate, width, problem = bool(self.make_gate), self._width, self.problem
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
        widths = [self.num_inputs] + [self._width] * self.problem.layers
        if self.problem.expert is None:
            return [a * b for a, b in itertools.pairwise(widths)]
        expert = self.problem.expert(self._width)
        expert.build((None, widths[0]))
        layers = [layer for layer in expert.layers if hasattr(layer, "kernel")]
        places = [math.prod(layer.output.shape[1:-1]) for layer in layers]
        sizes = [math.prod(layer.kernel.shape) for layer in layers]
        return [a * b for a, b in zip(places, sizes, strict=True)]

    def error(self, logs):
        """The mean loss of the tasks."""
        return logs["task_loss"] / len(self.binary)

    def measured(self, state):
        """The mean number of units that a task reads, and the largest one."""
        units = np.asarray(self.program.compute(self._units, state))
        return [units.mean(axis=1), units.max(axis=1)]

    def _units(self):
        """The number of units that each task reads, a tensor (tasks,)."""
        if self.gate is not None:
            used = ops.cast(self.gate.expert_weights() > 0, "float32")
            return self.problem.units * ops.sum(used, axis=-1)
        if self.architecture == "pruned_bottom":
            return ops.sum(self.model.get_layer("units").mask, axis=-1)
        return ops.full((1,), float(self._width))

    def splits(self, job):
        """The splits of its table."""
        return list(self.tables[job.seed].splits)

    def order(self, job):
        """The first rows of a new permutation in each epoch."""
        size, rng = (
            self.problem.steps * self.batch_size,
            np.random.default_rng(job.seed),
        )
        orders = (rng.permutation(self.rows)[:size] for _ in range(self.epochs))
        return np.stack([*orders])

    def numbers(self, arm, job, part):
        """Its settings, with a rate and noise that fall."""
        own = {**FIRST, "gamma": 3.0, **job.settings}
        own["rate"] *= falling(part)
        own["noise"] *= max(0.0, 1 - 2 * part)
        return own


def normalized_expert(units, layers):
    """An expert whose output is normalized over the batch, with a swish after it."""
    hidden = [keras.layers.Dense(units, "relu") for _ in range(layers - 1)]
    # A shorter memory than by default, for short trainings.
    norm = keras.layers.BatchNormalization(momentum=0.9)
    last = [keras.layers.Dense(units), norm, keras.layers.Activation("swish")]
    return keras.Sequential([*hidden, *last])


class Apart(MMoE):
    """Experts side by side, each times its weight, for a gate that learns its choice.

    A tower has a place for each of the n experts. Experts without a weight are zeros
    there, so that serving a task takes k of them.
    """

    def combine(self, inputs, router_inputs, training):
        """Map `(batch, features)` to `(batch, tasks, n * units)`."""
        outputs = self.experts(inputs, training=training)
        routing = self.gate.route(router_inputs, training)
        placed = ops.expand_dims(outputs, 1) * ops.expand_dims(routing.weights, -1)
        n, units = placed.shape[-2:]
        mixture = ops.reshape(placed, (-1, len(self.task_names), n * units))
        record_call(self.gate, routing, outputs, mixture)
        return mixture


def build_apart(num_inputs, tasks, experts, gate, **options):
    """Build a multi-task model whose towers read experts side by side."""
    inputs = keras.Input((num_inputs,))
    layer = Apart(experts, gate, len(tasks), stacked=True, name="mmoe")
    outputs = add_towers(layer(inputs), tasks, stacked=True)
    return MultitaskModel(inputs, outputs, tasks=tasks, **options)
