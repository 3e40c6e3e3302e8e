"""Train many runs of one model as one program of JAX.

A run has its own draw of the data, initial weights and settings: the learning rate, the
weight decay and what its gate reads from `SETTINGS`. All of them are variables of the
program, so that it is compiled once. Between epochs, gates are set on the host.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

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


class History(NamedTuple):
    """What is measured after each epoch, arrays (epochs,)."""

    validation: np.ndarray
    test: np.ndarray
    experts: np.ndarray  # The largest number of experts of a task.
    mass: np.ndarray  # The mean weight of the k largest.


class Trainer:
    """Trains a model with one kind of gate on a problem.

    Args:
        problem: A `Problem`.
        tables: Its data, a `Table` for each draw.
        seeds: The seed of each draw, for initial weights, orders and choices.
        make_gate: A function of k that returns a gate; `None` is a shared bottom.
        progress: Called with a number of runs when they are trained.
    """

    def __init__(self, problem, tables, seeds, make_gate, progress=lambda _: None):
        import jax  # pyright: ignore[reportMissingImports]

        self.problem, self.tables, self.seeds = problem, tables, list(seeds)
        self.progress = progress
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
            SETTINGS["mass"] = np.ones(1, "float32")
            self.model = self._build(make_gate)
            self.starts.append(list(map(on_host, self._variables())))
        self.gate: Any = self.model.get_layer("mmoe").gate if make_gate else None
        self._program = jax.jit(jax.vmap(self._epoch, (0, 0, 0, 0, None)))

    def _build(self, make_gate):
        problem, table = self.problem, self.tables[0]
        model = build_multitask_model(
            table.splits[0].x.shape[1],
            # Outputs of binary tasks are logits here.
            [Task(f"task_{i}", tower=problem.tower) for i in range(len(table.binary))],
            "mmoe" if make_gate else "shared_bottom",
            experts=DenseExperts(
                problem.num_experts if make_gate else 1,
                [problem.units * (1 if make_gate else problem.num_nonzeros)],
            ),
            gate=make_gate(problem.num_nonzeros) if make_gate else "softmax",
            per_example=False,
            stacked=True,
        )
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.0)
        # Only kernels decay: neither gates nor biases.
        optimizer.exclude_from_weight_decay(var_names=["bias", "logits", "noise"])
        optimizer.build(model.trainable_variables)
        model.compile(optimizer)
        if make_gate:
            scale_weights(model.get_layer("mmoe").gate)
        return model

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
        experts = mass = np.nan
        if self.gate is not None:
            variables = [*model.trainable_variables, *model.non_trainable_variables]
            values = zip(variables, [*trainable, *others], strict=True)
            with keras.StatelessScope(state_mapping=list(values)):
                weights = self.gate.expert_weights()
            experts = ops.cast((weights > 0).sum(axis=-1).max(), "float32")
            largest = ops.top_k(weights, self.k)[0].sum(axis=-1)
            mass = (largest / weights.sum(axis=-1)).mean()
        return [*trainable, *others, *slots], ops.stack([*losses, experts, mass])

    def _loss(self, outputs, labels):
        """The loss of each task: the squared error, or the cross-entropy."""
        known = ops.logical_not(ops.isnan(labels))
        labels = ops.where(known, labels, 0.0)
        entropy = ops.softplus(outputs) - labels * outputs
        each = ops.where(self.tables[0].binary, entropy, (outputs - labels) ** 2)
        return (each * known).sum(axis=0) / ops.maximum(known.sum(axis=0), 1)

    def gate_weights(self):
        """The weights of the gates of the model on the host, an array (tasks, n)."""
        return on_host(self.gate.expert_weights())

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
        masses = [np.float32(1.0)] * len(runs)
        if self.gate is not None:
            masses = [np.ones(self.gate.num_gates or 1, "float32")] * len(runs)
        orders = [np.random.default_rng(self.seeds[draw]) for draw in draws]
        measured = []
        epochs = self.problem.epochs
        events = [self.events(run) for run in runs]
        for epoch in range(epochs):
            due = [i for i, own in enumerate(events) if epoch in own]
            if due:
                state = [np.array(array) for array in state]
            for i in due:
                SETTINGS.update(runs[i].settings, mass=masses[i])
                for variable, array in zip(self._variables(), state, strict=True):
                    variable.assign(np.array(array[i]))
                masses[i] = events[i][epoch](self, runs[i])
                for variable, array in zip(self._variables(), state, strict=True):
                    array[i] = on_host(variable)
            order = [self._order(rng) for rng in orders]
            settings = [
                run.settings
                | {"rate": run.settings["rate"] * falling(epoch / epochs)}
                | {"noise": run.settings["noise"] * max(0.0, 1 - 2 * epoch / epochs)}
                | {"mass": mass}
                for run, mass in zip(runs, masses, strict=True)
            ]
            settings = {
                name: np.array([own[name] for own in settings], "float32")
                for name in settings[0]
            }
            state, numbers = self._program(
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


def scale_weights(gate):
    """Multiply a gate's weights with the setting `mass`, which is 1 in most runs."""
    compute = gate.compute_weights

    def scaled(*arguments):
        routing = compute(*arguments)
        mass = ops.reshape(SETTINGS["mass"], (-1, 1))
        return routing._replace(weights=routing.weights * mass)

    gate.compute_weights = scaled
