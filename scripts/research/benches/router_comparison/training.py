"""Train many copies of one model with a router, on JAX side by side as one program."""

import functools
import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras import DenseExperts, MoE, SmearExperts
from dselectk_keras.gates.record import recording
from dselectk_keras.ops import keep_top_k, softmax
from research.benches.gate_comparison.training import falling, make_optimizer
from research.benches.router_comparison.arms import FIRST, ROUTERS, UNITS
from research.benches.router_comparison.by_losses import (
    choice_loss,
    free_energy,
    posterior_loss,
)
from research.engine.settings import Settings
from research.engine.side_by_side import (
    concatenated,
    in_lanes,
    make_program,
    set_numbers,
    train_side_by_side,
)

STEPS, BATCH_SIZE = 150, 100  # Of a stage, after which the model is evaluated.
TAGS = "region", "hash", "none"


class Sizes(NamedTuple):
    """The sizes of a model.

    Args:
        inputs: The number of inputs.
        binary: For each task, whether its labels are 0 and 1, and not numbers.
        num_experts, hidden, classes: See `Problem`.
    """

    inputs: int
    binary: tuple
    num_experts: int
    hidden: int
    classes: int


class Model(keras.Model):
    """Experts, a router that all tasks share, and a linear layer for the tasks.

    Args:
        arm: An `Arm`.
        sizes: The `Sizes`.
    """

    def __init__(self, arm, sizes):
        super().__init__()
        self.arm, self.sizes = arm, sizes
        self.numbers = Settings(**FIRST)
        n = sizes.num_experts
        number, units = {"one": (1, arm.more["units"]), "wide": (1, n * UNITS)}.get(
            arm.architecture, (n, UNITS)
        )
        # Deviations are added to the shared kernel before the activation.
        shared = arm.more["shared"]
        activation = None if shared == "kernel" else "relu"
        bank = DenseExperts(number, [units], activation), arm.gate(self.numbers)
        self.shared = None
        if shared:
            has_bias = shared == "expert"  # Deviations have biases of their own.
            self.shared = keras.layers.Dense(UNITS, activation, use_bias=has_bias)
        options: Any = {"per_example": True}
        if sizes.hidden and not arm.more["tag"]:
            hidden = keras.layers.Dense(sizes.hidden, "relu")
            options["routing_network"] = hidden
        if arm.architecture == "merged":
            self.layer = SmearExperts(*bank, **options)
        else:
            self.layer = MoE(*bank, dispatch=False, **options)
        self.head = keras.layers.Dense(sizes.classes or len(sizes.binary))
        # The error of the experts that have probably made the labels, for each task.
        self.noise = self.add_weight(
            (len(sizes.binary),), "ones", trainable=False, name="noise"
        )

    def call(self, inputs, training=None):
        """Compute the outputs, or where single experts are trained, those of each."""
        x, tags = inputs
        arm, calls, routed = self.arm, [], ()
        if tag := arm.more["tag"]:
            routed = (tags[:, TAGS.index(tag)],)
        with recording(calls.append):
            mixture = self.layer(x, *routed, training=training)
        if arm.architecture == "merged":
            return self.head(mixture)
        routing, experts = calls[-1].routing, calls[-1].experts
        if self.shared is not None:
            # Which changes nothing where both are activations.
            experts = ops.relu(experts + self.shared(x)[:, None])
        if training and arm.architecture == "losses":
            return self.head(experts), ops.log_softmax(routing.logits)
        weights = routing.weights
        if training and arm.architecture == "annealed":
            weights = softmax(routing.logits / self.numbers.numbers["temperature"])
        if not training and (k := arm.more["k"]):
            weights = keep(weights, k)
        return self.head(ops.einsum("bn,bnu->bu", weights, experts))

    def compute_loss(self, x=None, y: Any = None, y_pred: Any = None, *_, **__):
        """Compute the mean over the tasks of their mean losses, and the penalties."""
        is_known = ops.logical_not(ops.isnan(y))
        y, known = ops.where(is_known, y, 0.0), ops.cast(is_known, "float32")

        def mean(losses):
            return ops.sum(known * losses, 0) / ops.maximum(ops.sum(known, 0), 1.0)

        if not isinstance(y_pred, tuple):
            found = mean(self.losses_of(y, y_pred))
        else:
            each = self.losses_of(y[:, None], y_pred[0])
            logs = y_pred[1][..., None]
            first = 1.0 / ops.where(self.are_classes, 1.0, 2.0 * self.noise)
            now = mean(posterior_loss(logs, each, first))
            step = ops.cast(ops.convert_to_tensor(self.layer.gate.step), "float32")
            rate = ops.maximum(0.02, 1.0 / ops.maximum(step, 1.0))
            numbers = self.numbers.numbers
            free = free_energy(logs, each, numbers["sharpness"] * first)
            chosen = choice_loss(logs, each, first)
            found = mean(ops.where(numbers["choice"] > 0.5, chosen, free))
            moved = self.noise + rate * (ops.stop_gradient(now) - self.noise)
            self.noise.assign(ops.maximum(moved, 1e-4))
        return ops.mean(found) + sum(self.losses)

    @property
    def are_classes(self):
        """For each task, whether its loss is a cross-entropy."""
        return np.array(self.sizes.binary)

    def losses_of(self, labels, outputs):
        """Compute the loss of each label."""
        if self.sizes.classes:
            classes = ops.one_hot(ops.cast(labels[..., 0], "int32"), outputs.shape[-1])
            return -ops.sum(classes * ops.log_softmax(outputs), -1, keepdims=True)
        entropies = ops.softplus(outputs) - labels * outputs
        squares = ops.square(labels - outputs)
        return ops.where(self.are_classes, entropies, squares)


def keep(weights, k):
    """Give the weight of all experts to the k with the largest weights."""
    kept = ops.where(keep_top_k(weights, k) > -float("inf"), weights, 0.0)
    total, left = (ops.sum(each, -1, keepdims=True) for each in (weights, kept))
    return kept * total / ops.maximum(left, 1e-9)


@functools.cache
def program_of(arm, sizes):
    """A program of an arm; other seeds and problems of these sizes share it."""
    return make_program(build(arm, sizes, 0), BATCH_SIZE)


@functools.cache
def first_state(arm, sizes, seed):
    """The state of a model that is not trained."""
    return program_of(arm, sizes).read([build(arm, sizes, seed)])


def build(arm, sizes, seed):
    """A compiled model, with the weights of a seed."""
    keras.utils.set_random_seed(seed)
    model = Model(ROUTERS[arm], sizes)
    model((np.zeros((1, sizes.inputs), "float32"), np.zeros((1, len(TAGS)), "int32")))
    # Only the kernels of the experts and of the last layer decay.
    others = [model.layer.gate, model.layer.routing_network]
    if ROUTERS[arm].more["shared"] == "kernel":
        others.append(model.shared)
    own = [v for each in others if each is not None for v in each.trainable_variables]
    model.compile(make_optimizer(model, own))
    return model


def train(problem, arm, tables, jobs, stages):
    """Train an arm on a problem, once for each job.

    Args:
        problem: A `Problem`.
        arm: The name of an `Arm`.
        tables: A dict of its `Table` by seed.
        jobs: A list of `Job`, with the settings `rate`, `decay` and `own`.
        stages: The number of stages of the training.

    Returns:
        For each job, a dict of the lowest validation error of all stages, the
        `objective`, and of the stage and the test error of it.
    """
    table = tables[jobs[0].seed]
    x, _ = table.splits[0]
    sizes = Sizes(
        x.shape[1],
        tuple(map(bool, table.binary)),
        problem.num_experts,
        problem.hidden,
        problem.classes,
    )
    return in_lanes(lambda lanes: _train(arm, sizes, tables, lanes, stages), jobs)


def _train(arm, sizes, tables, jobs, stages):
    tables = [tables[job.seed] for job in jobs]
    program, total = program_of(arm, sizes), stages * STEPS
    model, rows = program.model, [len(x) for x, _ in tables[0].splits]
    # Of one size, for one program.
    rows[1:] = [min(rows[1:])] * 2
    # The draws one below the other.
    data = [
        concatenated([_arrays(table, i, count, sizes) for table in tables])
        for i, count in enumerate(rows)
    ]
    state = concatenated([first_state(arm, sizes, job.seed) for job in jobs])
    gate, own = model.layer.gate, [job.settings["own"] for job in jobs]
    firsts = [ROUTERS[arm].more["start"](gate, each, total) for each in own]
    for pairs in zip(*firsts, strict=True):
        (variable, _), *_ = pairs
        values = np.array([value for _, value in pairs], variable.dtype)
        state = program.assign(state, {id(variable): values})
    lanes = np.arange(len(jobs))[:, None]
    orders = [_order(rows[0], total * BATCH_SIZE, job.seed) for job in jobs]
    orders = np.stack([order.reshape(stages, -1) for order in orders], axis=1)

    def prepare(state, stage):
        settings = [_settings(arm, job, stage / stages) for job in jobs]
        return set_numbers(program, state, model.numbers.numbers, settings)

    _, found = train_side_by_side(
        program,
        state,
        data[0],
        orders + lanes * rows[0],
        [(data[i], lanes * rows[i] + np.arange(rows[i])) for i in (1, 2)],
        prepare,
    )
    errors = [[log["loss"] for log in logs] for _, *logs in found]
    return list(map(_best, np.transpose(errors, (2, 1, 0))))


def _settings(arm, job, done):
    """The settings of a job after a part of the training."""
    own = {"rate": job.settings["rate"] * falling(done), "decay": job.settings["decay"]}
    return {**FIRST, **own, **ROUTERS[arm].more["change"](job.settings["own"], done)}


def _arrays(table, part, count, sizes):
    """Inputs and labels of the first examples of a part of a table."""
    x, y = (each[:count] for each in table.splits[part])
    n = sizes.num_experts
    known = table.groups
    planes = np.random.default_rng(0).normal(size=(x.shape[1], int(math.log2(n))))
    hashes = (x @ planes > 0) @ 2 ** np.arange(planes.shape[1])
    zeros = np.zeros(count, "int32")
    tags = [zeros if known is None else known[part][:count], hashes, zeros]
    return (x, np.stack(tags, axis=1).astype("int32")), y


def _order(rows, needed, seed):
    """The rows of all steps: as many permutations as it takes."""
    rng = np.random.default_rng(seed)
    every = [rng.permutation(rows) for _ in range(math.ceil(needed / rows))]
    return np.concatenate(every)[:needed]


def _best(history):
    """The stage with the lowest validation error."""
    validation, test = (np.where(np.isfinite(each), each, np.inf) for each in history)
    best = int(validation.argmin())
    return {"objective": validation[best], "test": test[best], "stage": best + 1}
