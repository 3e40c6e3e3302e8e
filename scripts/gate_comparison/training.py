"""Train many runs of one model as one program of JAX.

A run has its own draw of the data, initial weights and settings: the learning rate, the
weight decay and what its gate reads from `SETTINGS`. All of them are variables of the
program, so that it is compiled once. Between epochs, gates are set on the host.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from pruned_bottom import build_pruned_bottom

from dselectk_keras import build_multitask_model
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import Task

# What gates and optimizers read while a program is traced: see `setting`.
SETTINGS: dict[str, Any] = {}
STEPS = 10  # In an epoch.
LANES = 4  # Runs that are trained side by side.


def setting(name):
    """A schedule whose value is a setting of the run."""
    return lambda step: SETTINGS[name]  # noqa: ARG005


@dataclasses.dataclass(frozen=True)
class Program:
    """A model that is trained.

    Args:
        make_gate: A function of k and n that returns a gate.
        wide: Whether a shared bottom has the units of all experts, not of k.
        pruned: Whether each task keeps as many of them as k experts have.
        options: Options of the architecture.
    """

    make_gate: Callable | None = None
    wide: bool = False
    pruned: bool = False
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
        program: The `Program`.
        progress: Called with a number of runs when they are trained.
    """

    def __init__(self, problem, tables, seeds, program, progress=lambda _: None):
        import jax  # pyright: ignore[reportMissingImports]

        self.problem, self.tables, self.seeds = problem, tables, list(seeds)
        self.progress, self.program = progress, program
        self.k = problem.num_nonzeros
        rows = [len(x) for x, _ in tables[0].splits]
        if rows[0] < STEPS:
            raise SystemExit(
                f"There must be at least {STEPS} training examples, because an epoch "
                f"has {STEPS} steps. Received: {rows[0]} of {sum(rows)} rows. Three of "
                "five rows are training examples."
            )
        self.batch_size = rows[0] // STEPS
        self.data = jax.device_put(
            jax.tree.map(lambda *draws: np.stack(draws), *(t.splits for t in tables))
        )
        self.starts = []
        for seed in self.seeds:
            keras.utils.set_random_seed(seed)
            SETTINGS.update(rate=0.01, decay=0.0, entropy=0.0, gamma=1.0, noise=0.0)
            self.model = self._build()
            self.starts.append(list(map(on_host, self._variables())))
        self.gate: Any = None
        if program.make_gate:
            self.gate = self.model.get_layer("mmoe").gate
        self._compiled = jax.jit(jax.vmap(self._epoch, (0, 0, 0, 0, None)))

    def _build(self):
        problem, table, program = self.problem, self.tables[0], self.program
        n, units, gate = problem.num_experts, problem.units, "softmax"
        if program.make_gate:
            gate = program.make_gate(self.k, n)
        else:
            n, units = 1, self.units_of_bottom
        num_inputs = table.splits[0].x.shape[1]
        # Outputs of binary tasks are logits here.
        tasks = [
            Task(f"task_{i}", tower=problem.tower) for i in range(len(table.binary))
        ]
        experts = DenseExperts(n, [units] * problem.layers)
        if program.pruned:
            model = build_pruned_bottom(num_inputs, tasks, experts)
        else:
            model = build_multitask_model(
                num_inputs,
                tasks,
                "mmoe" if program.make_gate else "shared_bottom",
                experts=experts,
                gate=gate,
                stacked=True,
                **program.options,
            )
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.0)
        # Only kernels decay: neither gates nor biases.
        optimizer.exclude_from_weight_decay(var_names=["bias", "logits", "noise"])
        optimizer.build(model.trainable_variables)
        model.compile(optimizer)
        return model

    @property
    def units_of_bottom(self):
        """The units of a shared bottom: those of k experts, or of all."""
        wide = self.program.wide
        return self.problem.units * (self.problem.num_experts if wide else self.k)

    def multiplications(self, units):
        """What serving one task takes, if it reads so many units."""
        problem, num_inputs = self.problem, self.data[0][0].shape[-1]
        hidden, *_ = [*problem.tower, 1]
        tower = (hidden > 1) * hidden
        if self.gate is None:
            # A layer below the last one needs all its units.
            widths = [self.units_of_bottom] * (problem.layers - 1) + [units]
            experts, read = 1, units
        else:
            widths = [problem.units] * problem.layers
            experts = units / problem.units
            side_by_side = self.program.options.get("side_by_side")
            read = units if side_by_side else problem.units
        pairs = zip([num_inputs, *widths], widths, strict=False)
        return experts * sum(a * b for a, b in pairs) + read * hidden + tower

    def _variables(self):
        model = self.model
        return [
            *model.trainable_variables,
            *model.non_trainable_variables,
            *model.optimizer.variables,
        ]

    def _parts(self, state):
        model = self.model
        first = len(model.trainable_variables)
        second = first + len(model.non_trainable_variables)
        return state[:first], state[first:second], state[second:]

    def _epoch(self, state, order, draw, settings, data):
        """Train for an epoch; return the state, and what is measured."""
        import jax  # pyright: ignore[reportMissingImports]

        SETTINGS.update(settings)
        model, optimizer = self.model, self.model.optimizer
        optimizer.weight_decay = settings["decay"]
        splits = [(x[draw], y[draw]) for x, y in data]
        rate = next(
            i for i, v in enumerate(optimizer.variables) if v is optimizer.learning_rate
        )
        trainable, others, slots = self._parts(state)
        slots[rate] = settings["rate"]

        def loss(trainable, others, x, y):
            outputs, others, penalties = model.stateless_call(
                trainable, others, x, training=True, return_losses=True
            )
            return self._loss(outputs, y).sum() + sum(penalties), others

        def step(state, chosen):
            trainable, others, slots = state
            x, y = (array[chosen] for array in splits[0])
            found = jax.grad(loss, has_aux=True)(trainable, others, x, y)
            gradients, others = found
            trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
            return (list(trainable), list(others), list(slots)), None

        state, _ = jax.lax.scan(step, (trainable, others, slots), order)
        trainable, others, slots = state
        losses = [
            self._loss(model.stateless_call(trainable, others, x)[0], y).mean()
            for x, y in splits[1:]
        ]
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        values = zip(variables, [*trainable, *others], strict=True)
        with keras.StatelessScope(state_mapping=list(values)):
            units = self._units()
        measured = [*losses, units.mean(), units.max()]
        return [*trainable, *others, *slots], ops.stack(measured)

    def _units(self):
        """The number of units that each task reads, a tensor (tasks,)."""
        if self.gate is not None:
            used = ops.cast(self.gate.expert_weights() > 0, "float32")
            return self.problem.units * ops.sum(used, axis=-1)
        if self.program.pruned:
            return ops.sum(self.model.get_layer("units").mask, axis=-1)
        return ops.full((1,), float(self.units_of_bottom))

    def _loss(self, outputs, labels):
        """The loss of each task: the squared error, or the cross-entropy."""
        known = ops.logical_not(ops.isnan(labels))
        labels = ops.where(known, labels, 0.0)
        entropy = ops.softplus(outputs) - labels * outputs
        each = ops.where(self.tables[0].binary, entropy, (outputs - labels) ** 2)
        return (each * known).sum(axis=0) / ops.maximum(known.sum(axis=0), 1)

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
        draws = np.array([run.draw for run in runs])
        starts = [self.starts[draw] for draw in draws]
        state = [np.stack(each) for each in zip(*starts, strict=True)]
        orders = [np.random.default_rng(self.seeds[draw]) for draw in draws]
        measured = []
        epochs = self.problem.epochs
        events = [self.events(run) for run in runs]
        for epoch in range(epochs):
            due = [i for i, own in enumerate(events) if epoch in own]
            if due:
                state = [np.array(array) for array in state]
            for i in due:
                SETTINGS.update(runs[i].settings)
                for variable, array in zip(self._variables(), state, strict=True):
                    variable.assign(np.array(array[i]))
                events[i][epoch](self, runs[i])
                for variable, array in zip(self._variables(), state, strict=True):
                    array[i] = on_host(variable)
            order = [self._order(rng) for rng in orders]
            settings = [
                run.settings
                | {"rate": run.settings["rate"] * falling(epoch / epochs)}
                | {"noise": run.settings["noise"] * max(0.0, 1 - 2 * epoch / epochs)}
                for run in runs
            ]
            settings = {
                name: np.array([own[name] for own in settings], "float32")
                for name in settings[0]
            }
            state, numbers = self._compiled(
                state, np.stack(order), draws, settings, self.data
            )
            measured.append(numbers)
        return np.moveaxis(np.array(measured), 0, 2)

    def events(self, run):
        """What is done to the model of a run, by the epoch before which it is done."""
        epochs = self.problem.epochs
        return {
            min(round(part * epochs), epochs - 1): action
            for part, action in run.events.items()
        }

    def _order(self, rng):
        size = self.batch_size * STEPS
        order = rng.permutation(len(self.tables[0].splits[0].x))[:size]
        return order.reshape(STEPS, self.batch_size)


def on_host(tensor):
    """A copy of a variable or tensor as an array."""
    return np.array(keras.ops.convert_to_numpy(tensor))


def falling(progress):
    """The factor of the learning rate: 1, and in the last fifth falling to 0.05."""
    return float(np.clip((1.05 - progress) / 0.25, 0.05, 1.0))
