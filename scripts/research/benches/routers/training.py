"""The models with routers, and their training."""

import functools
import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras import DenseExperts, MoE, SmearExperts
from dselectk_keras.gates.record import recording
from dselectk_keras.ops import softmax
from research.benches.routers.arms import BATCH_SIZE, FIRST, STEPS, UNITS
from research.benches.routers.by_losses import choice_loss, free_energy, posterior_loss
from research.benches.training import Trainer, falling, keep, make_optimizer
from research.engine.settings import Settings

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


class RouterTrainer(Trainer):
    """Trains a model with a router.

    Args:
        arm: An `Arm`.
        sizes: The `Sizes`.
        stages: The number of stages of the training.
    """

    def __init__(self, arm, sizes, stages):
        super().__init__(BATCH_SIZE, stages)
        self.arm, self.sizes = arm, sizes

    def build(self):
        """A model that is compiled, its gate and its settings."""
        model = Model(self.arm, self.sizes)
        x, tags = (np.zeros((1, n)) for n in (self.sizes.inputs, len(TAGS)))
        model((x.astype("float32"), tags.astype("int32")))
        # Only the kernels of the experts and of the last layer decay.
        others = [model.layer.gate, model.layer.routing_network]
        if self.arm.more["shared"] == "kernel":
            others.append(model.shared)
        own = [v for layer in others if layer for v in layer.trainable_variables]
        model.compile(make_optimizer(model, own))
        return model, model.layer.gate, model.numbers

    def splits(self, job):
        """Inputs with tags, and labels."""
        table, n = self.tables[job.seed], self.sizes.num_experts
        planes = np.random.default_rng(0).normal(
            size=(self.sizes.inputs, int(math.log2(n)))
        )
        # Of one size, for one program.
        held_out = min(len(x) for x, _ in table.splits[1:])
        found = []
        for part, (x, y) in enumerate(table.splits):
            zeros = np.zeros(len(x), "int32")
            known = zeros if table.groups is None else table.groups[part]
            hashes = (x @ planes > 0) @ 2 ** np.arange(planes.shape[1])
            tags = np.stack([known, hashes, zeros], axis=1).astype("int32")
            count = held_out if part else len(x)
            found.append(((x[:count], tags[:count]), y[:count]))
        return found

    def order(self, job):
        """The rows of all steps: as many permutations as it takes."""
        rows = len(self.tables[job.seed].splits[0][0])
        needed = self.epochs * STEPS * BATCH_SIZE
        rng = np.random.default_rng(job.seed)
        every = [rng.permutation(rows) for _ in range(math.ceil(needed / rows))]
        return np.concatenate(every)[:needed].reshape(self.epochs, -1)

    def numbers(self, arm, job, part):
        """The settings of an arm after a part of the training."""
        rate, decay, own = (job.settings[name] for name in ("rate", "decay", "own"))
        shared = {"rate": rate * falling(part), "decay": decay}
        return {**FIRST, **shared, **arm.more["change"](own, part)}


@functools.cache
def trainer_of(arm, sizes, stages):
    """A trainer with its compiled program, which problems of these sizes share."""
    return RouterTrainer(arm, sizes, stages)


def sizes_of(problem, table):
    """The `Sizes` of a problem."""
    x, _ = table.splits[0]
    binary = tuple(map(bool, table.binary))
    sizes = problem.num_experts, problem.hidden, problem.classes
    return Sizes(x.shape[1], binary, *sizes)
