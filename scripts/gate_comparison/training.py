"""Train many runs of one model, on JAX side by side as one program.

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
from dselectk_keras.experts import DenseExperts, Experts
from dselectk_keras.models import Task

# What gates and optimizers read while a program is traced: see `setting`.
SETTINGS: dict[str, Any] = {}
STEPS = 10  # In an epoch.
# What gates may read, at first.
FIRST = {"entropy": 0.0, "gamma": 1.0, "noise": 0.0, "bias_rate": 0.0}
LANES = 4  # Runs that are trained side by side.
NO_DECAY = ["bias", "logits", "noise", "gamma", "beta"]  # Only kernels decay.


def setting(name):
    """A schedule whose value is a setting of the run."""
    return lambda step: ops.convert_to_tensor(SETTINGS[name])  # noqa: ARG005


def set_settings(values):
    """Set what a program reads: constants while JAX traces it, and else variables."""
    if on_jax():
        SETTINGS.update(values)
        return
    for name, value in values.items():
        variable = SETTINGS.setdefault(name, keras.Variable(0.0, trainable=False))
        variable.assign(value)


def on_jax():
    """Whether the runs are trained side by side."""
    return keras.backend.backend() == "jax"


@dataclasses.dataclass(frozen=True)
class Program:
    """A model that is trained.

    Args:
        make_gate: A function of k and n that returns a gate.
        wide: Whether a shared bottom has the units of all experts, not of k.
        pruned: Whether each task keeps as many of them as k experts have.
        normalized: Whether the outputs of experts are normalized over the batch, with
            a swish after it, as in HoME.
        options: Options of the architecture.
    """

    make_gate: Callable | None = None
    wide: bool = False
    pruned: bool = False
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
        program: The `Program`.
        progress: Called with a number of runs when they are trained.
    """

    def __init__(self, problem, tables, seeds, program, progress=lambda _: None):
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
        splits = zip(*(table.splits for table in tables), strict=True)
        self.data: Any = [
            tuple(map(np.stack, zip(*draws, strict=True))) for draws in splits
        ]
        self.starts = []
        for seed in self.seeds:
            keras.utils.set_random_seed(seed)
            set_settings({"rate": 0.01, "decay": 0.0, **FIRST})
            self.model = self._build()
            self.starts.append(list(map(on_host, self._variables())))
        self.gate: Any = None
        if program.make_gate:
            self.gate = self.model.get_layer("mmoe").gate
        self._compiled: Any = self._one_by_one
        if on_jax():
            import jax  # pyright: ignore[reportMissingImports]

            self.data = jax.device_put(self.data)
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
        if program.normalized:
            experts = Experts(normalized_expert(units, problem.layers), n)
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
        optimizer.exclude_from_weight_decay(var_names=NO_DECAY)
        optimizer.build(model.trainable_variables)
        model.compile(optimizer, loss=self._total)
        if not on_jax():
            optimizer.weight_decay = SETTINGS["decay"]
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

        set_settings(settings)
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

    def _one_by_one(self, state, orders, draws, settings, data):
        """The same for each run, by the steps of Keras."""
        model, measured = self.model, []
        for lane, draw in enumerate(draws):
            self._write(state, lane)
            own = {name: float(values[lane]) for name, values in settings.items()}
            set_settings(own)
            model.optimizer.learning_rate = own["rate"]
            (x, y), *held_out = ((x[draw], y[draw]) for x, y in data)
            for chosen in orders[lane]:
                model.train_on_batch(x[chosen], y[chosen])
            losses = [
                on_host(self._loss(model.predict_on_batch(x), y)).mean()
                for x, y in held_out
            ]
            units = on_host(self._units())
            measured.append([*losses, units.mean(), units.max()])
            self._read(state, lane)
        return state, measured

    def _write(self, state, lane):
        """Set the variables of the model to those of one run."""
        for variable, array in zip(self._variables(), state, strict=True):
            variable.assign(np.array(array[lane]))

    def _read(self, state, lane):
        for variable, array in zip(self._variables(), state, strict=True):
            array[lane] = on_host(variable)

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
        outputs, labels = map(ops.convert_to_tensor, (outputs, labels))
        missing = ops.isnan(labels)
        known = ops.cast(ops.logical_not(missing), "float32")
        labels = ops.where(missing, 0.0, labels)
        entropy = ops.softplus(outputs) - labels * outputs
        each = ops.where(self.tables[0].binary, entropy, (outputs - labels) ** 2)
        count = ops.maximum(ops.sum(known, axis=0), 1.0)
        return ops.sum(each * known, axis=0) / count

    def _total(self, labels, outputs):
        return ops.sum(self._loss(outputs, labels))

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
                set_settings(runs[i].settings)
                self._write(state, i)
                events[i][epoch](self, runs[i])
                self._read(state, i)
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


def normalized_expert(units, layers):
    """An expert whose output is normalized over the batch, with a swish after it."""
    hidden = [keras.layers.Dense(units, "relu") for _ in range(layers - 1)]
    # A shorter memory than by default, for short trainings.
    norm = keras.layers.BatchNormalization(momentum=0.9)
    last = [keras.layers.Dense(units), norm, keras.layers.Activation("swish")]
    return keras.Sequential([*hidden, *last])


def on_host(tensor):
    """A copy of a variable or tensor as an array."""
    return np.array(keras.ops.convert_to_numpy(tensor))


def falling(progress):
    """The factor of the learning rate: 1, and in the last fifth falling to 0.05."""
    return float(np.clip((1.05 - progress) / 0.25, 0.05, 1.0))
