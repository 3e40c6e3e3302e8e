"""The work that is measured."""

import dataclasses
import itertools
import math

import keras
import numpy as np

from dselectk_keras.experts import DenseExperts, Experts
from dselectk_keras.gates import DSelectKGate, TopKGate
from dselectk_keras.models import Task
from research.speed import forms


@dataclasses.dataclass(frozen=True)
class Workload:
    """A mixture of experts with a tower for each task, and batches for it."""

    title: str  # What it is, in a few words.
    input_shape: tuple[int, ...]
    num_experts: int
    units: int | None  # Of an expert; `None` is a small convolutional network.
    num_tasks: int
    num_nonzeros: int  # Experts that a task chooses.
    batch_size: int
    gate: str = "dselect_k"  # Or "top_k".
    per_example: bool = False  # Whether the gates look at the examples.
    tower: tuple[int, ...] | str = ()  # See `Task`.
    num_classes: int | None = None  # Of each task; `None` makes it a regression.

    @property
    def num_features(self):
        """The number of an example's features."""
        return math.prod(self.input_shape)

    @property
    def num_used(self):
        """The number of experts in use where each task chooses others."""
        return min(self.num_experts, self.num_tasks * self.num_nonzeros)

    def small(self):
        """The same with fewer tasks and experts, to see that forms agree."""
        # Still enough for all forms: eight tasks are stacked, a few are dispatched.
        tasks, experts = 8 if self.num_tasks >= 8 else 2, min(self.num_experts, 16)
        return dataclasses.replace(
            self, batch_size=32, num_tasks=tasks, num_experts=experts
        )

    @property
    def forms(self):
        """The names of the forms that make sense for it."""
        return forms.forms_of(self)

    def model(self, form, seed=0):
        """A compiled model of a form."""
        keras.utils.set_random_seed(seed)
        return forms.FORMS[form](self)

    def differences(self):
        """The largest difference of each form to what it must equal."""
        return forms.differences(self)

    def products(self, form):
        """Operations of the products for an example: the first layers, and the rest."""
        tasks = 1 if form == "one task" else self.num_tasks
        used = {
            "condensed": self.num_used,
            "one task": self.num_nonzeros,
            "dispatched": self.num_used,
        }.get(form, self.num_experts)
        sizes, out = [2 * self.num_features * (self.units or 0)], self.units or 50
        if self.units is None:
            height, width, channels = self.input_shape
            sizes = []
            for filters in (10, 20):
                height, width = height - 4, width - 4
                sizes.append(2 * height * width * 25 * channels * filters)
                height, width, channels = height // 2, width // 2, filters
            sizes.append(2 * height * width * channels * out)
        logits = self.num_experts
        if self.gate == "dselect_k":
            logits = self.num_nonzeros * ((logits - 1).bit_length() + 1)
        gates = 2 * self.per_example * self.num_features * logits * tasks
        mixture = 2 * used * out * tasks
        widths = [out, *self.tower, self.num_classes or 1]
        if self.tower == "sum":
            widths = []
            if form.startswith("plain"):
                mixture //= out  # The sum comes before the mixture.
        towers = 2 * tasks * sum(a * b for a, b in itertools.pairwise(widths))
        return [*(used * each for each in sizes), gates, mixture, towers]

    def new_gate(self, num_gates=None):
        """A gate that is not built."""
        make = {"dselect_k": DSelectKGate, "top_k": TopKGate}[self.gate]
        return make(self.num_nonzeros, num_gates=num_gates)

    def expert_layers(self):
        """The layers of an expert, new ones at every call."""
        if self.units is not None:
            return [keras.layers.Dense(self.units, activation="relu")]
        return [
            keras.layers.Conv2D(10, 5, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(20, 5, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(50, activation="relu"),
        ]

    def new_bank(self):
        """A bank of the experts."""
        if self.units is not None:
            return DenseExperts(self.num_experts, [self.units])
        return Experts(keras.Sequential(self.expert_layers()), self.num_experts)

    def new_tasks(self):
        """The tasks."""
        kind = "regression" if self.num_classes is None else "multiclass"
        return [
            Task(f"task_{t}", kind, self.num_classes, self.tower)
            for t in range(self.num_tasks)
        ]

    def chosen_weights(self):
        """Weights `(num_tasks, num_experts)` of static gates that have decided.

        Each task has chosen experts of its own, as long as there are any.
        """
        weights = np.zeros((self.num_tasks, self.num_experts), "float32")
        for t in range(self.num_tasks):
            for s in range(self.num_nonzeros):
                weights[t, (t * self.num_nonzeros + s) % self.num_experts] = 1 + s
        return weights / weights.sum(axis=1, keepdims=True)

    def data(self, num_steps=1, seed=0):
        """Random inputs, and labels `(samples, tasks)`, for some steps."""
        rng = np.random.default_rng(seed)
        size = num_steps * self.batch_size
        x = rng.standard_normal((size, *self.input_shape), "float32")
        if self.num_classes is not None:
            return x, rng.integers(0, self.num_classes, (size, self.num_tasks))
        # Labels that a mixture of experts can learn. Noise would teach the gates to
        # choose a few experts for all tasks.
        flat = x.reshape(size, -1)
        mixing = rng.standard_normal((flat.shape[1], self.num_tasks), "float32")
        return x, np.tanh(flat @ mixing / np.sqrt(flat.shape[1]))


_MOVIELENS = Workload(
    "few experts of middling width (the shape of MovieLens)",
    input_shape=(128,),
    num_experts=8,
    units=256,
    num_tasks=2,
    num_nonzeros=2,
    batch_size=128,
    tower=(256,),
)
_MANY_EXPERTS = Workload(
    "many experts",
    input_shape=(256,),
    num_experts=64,
    units=512,
    num_tasks=4,
    num_nonzeros=2,
    batch_size=1024,
    gate="top_k",
    per_example=True,
)
WORKLOADS = {
    "W1-static-128": _MOVIELENS,
    "W1-static-4096": dataclasses.replace(_MOVIELENS, batch_size=4096),
    # Without towers, which cannot be condensed.
    "W1-bare-4096": dataclasses.replace(_MOVIELENS, batch_size=4096, tower=()),
    "W1-per-example-128": dataclasses.replace(_MOVIELENS, per_example=True),
    "W1-per-example-4096": dataclasses.replace(
        _MOVIELENS, per_example=True, batch_size=4096
    ),
    "W2": Workload(
        "many tasks",
        input_shape=(10,),
        num_experts=32,
        units=4,
        num_tasks=128,
        num_nonzeros=4,
        batch_size=256,
        tower="sum",
    ),
    "W3": Workload(
        "images",
        input_shape=(36, 36, 1),
        num_experts=8,
        units=None,
        num_tasks=2,
        num_nonzeros=2,
        batch_size=256,
        num_classes=10,
    ),
    "W4": _MANY_EXPERTS,
    "W4-dselect-k": dataclasses.replace(_MANY_EXPERTS, gate="dselect_k"),
    "W4-static": dataclasses.replace(
        _MANY_EXPERTS, gate="dselect_k", per_example=False
    ),
}
