"""MovieLens as two ranking tasks: a film is watched, and liked if it is watched."""

import dataclasses
import math
import tempfile
import time
from typing import Any

import keras
import numpy as np

from dselectk_keras import (
    DecideGates,
    DenseExperts,
    DSelectKGate,
    SoftmaxGate,
    Task,
    build_multitask_model,
    condense,
)
from dselectk_keras.baselines.single_expert import closest_widths
from dselectk_keras.datasets import Split
from dselectk_keras.tables.scores import area_under_curve
from research.engine import Arm, Experiment, preset
from research.papers.data import movielens

TASKS = ("watched", "liked")
# The numbers of the order, with their names in a table.
ORDERS = {
    f"{task}_{area.lower()}": f"{task} {area}:"
    for task in TASKS
    for area in ("AUC", "GAUC")
}
LIKED = 4.0  # Stars.
BANKS = ("experts", "task_experts")  # The attributes of layers.


def dselect_k():
    """The gate of DSelect-k, with two experts per task."""
    return DSelectKGate(num_nonzeros=2, gamma=3.0)


@dataclasses.dataclass(frozen=True)
class Ranking(Experiment):
    """Models of the same size, each with its own tuned learning rate.

    A seed draws the pairs without a rating, the split and the weights anew. The loss
    of `liked` is over the pairs that have a rating. Widths of experts are such that all
    models have the same number of parameters without embeddings and gates.
    """

    name = "ranking"
    title = "two ranking tasks on MovieLens"
    needs = ("MovieLens", 2)
    all_train = 161_338  # Eight of ten ratings, and as many random pairs.
    page = """\
{table_models}

Means of {seeds} seeds, with errors of {largest_error:.4f} or less; \
`python scripts/reproduce.py ranking --data-dir DATA`, {machines}."""

    seeds: int = 5
    version: str = "latest-small"
    num_train: int | None = preset(None, smoke=2_000)
    embedding: int = 16
    num_experts: int = 8
    tower: int = 32
    num_params: int = preset(20_000, smoke=6_000)
    batch_size: int = 512
    epochs: int = preset(6, smoke=2)
    learning_rates: tuple[float, ...] = preset((0.001, 0.003, 0.01), smoke=(0.01,))
    weight_decays: tuple[float, ...] = preset((0.01, 0.1), smoke=(0.1,))
    sampler: str = "grid"
    decide_by: float = 1 / 3  # The part of the training, for DSelect-k.
    calls: int = preset(500, smoke=3)  # Of the served model, for its latency.

    @property
    def arms(self):
        """The models, by name."""
        return {
            "shared bottom": Arm(architecture="shared_bottom"),
            "MMoE, softmax": Arm(SoftmaxGate, per_example=True),
            "PLE, softmax": Arm(SoftmaxGate, "ple", per_example=True),
            "DSelect-k, per-example": Arm(dselect_k, per_example=True, decide=True),
            "DSelect-k, static, condensed": Arm(dselect_k, decide=True),
        }

    def space(self, arm):
        """The learning rate and the weight decay of AdamW."""
        return {
            "learning_rate": self.learning_rates,
            "weight_decay": self.weight_decays,
        }

    def run(self, arm, jobs):
        """Train one after the other."""
        if keras.backend.backend() != "tensorflow":
            raise ValueError("TensorFlow writes the SavedModels: --backend tensorflow.")
        return [self._run(self.arms[arm], job) for job in jobs]

    def _run(self, arm, job):
        keras.utils.clear_session()
        keras.utils.set_random_seed(job.seed)
        data = movielens(
            self.version, self.num_train, seed=job.seed, data_dir=self.data_dir
        )
        parts = data.train, data.validation, data.test
        train, validation, test = map(as_ranking, parts)
        sizes = data.info["vocabulary_sizes"]
        model = self.model(arm, sizes)
        model.compile(keras.optimizers.AdamW(**job.settings))
        best = keras.callbacks.EarlyStopping(
            "val_task_loss",
            mode="min",
            patience=2,
            restore_best_weights=True,
            # Sparse gates count once they have decided.
            start_from_epoch=int(self.decide_by * self.epochs) if arm.decide else 0,
        )
        model.fit(
            *train,
            batch_size=self.batch_size,
            epochs=self.epochs,
            validation_data=validation,
            validation_batch_size=4096,
            callbacks=[best, *[DecideGates(self.decide_by)] * arm.decide],
            verbose=0,
        )
        if job.is_trial:
            return {"objective": float(best.best)}
        small = condense(model) if arm.decide and not arm.per_example else model
        return {
            "parameters": small.count_params() - sum(sizes) * self.embedding,
            **measure_order(small, test),
            **measure_serving(small, test.x, self.calls),
        }

    def table_models(self, results):
        """The order, the size and the latency of each model."""
        rows: list[Any] = [["model", *ORDERS.values(), "parameters:", "ms:"]]
        for arm in self.arms:
            times = [f"{results.mean(arm, f'milliseconds_{n}'):.2f}" for n in (1, 256)]
            size = f"{results.mean(arm, 'parameters'):,.0f}"
            order = [f"{results.mean(arm, name):.4f}" for name in ORDERS]
            rows.append([arm, *order, size, " / ".join(times)])
        return rows

    def largest_error(self, results):
        """The largest error of a mean."""
        return max(results.error(arm, n) for arm in self.arms for n in ORDERS)

    def model(self, arm, sizes):
        """The model of an arm, for so many users and films."""

        def count(units):
            return count_kernels(self.build(arm, sizes, units))

        return self.build(arm, sizes, closest_widths([64], self.num_params, count))

    def build(self, arm, sizes, units):
        """The model of an arm whose experts have this width."""
        inputs = keras.Input((2,), dtype="int32", name="pair")
        embedded = [
            keras.layers.Embedding(size, self.embedding)(inputs[:, column])
            for column, size in enumerate(sizes)
        ]
        return build_multitask_model(
            keras.Model(inputs, keras.layers.Concatenate()(embedded)),
            [Task(name, "binary", tower=(self.tower,)) for name in TASKS],
            arm.architecture,
            experts=DenseExperts(self.num_experts, units),
            gate=arm.gate and arm.gate(),
            per_example=arm.per_example,
            label_average="labels",
        )


def count_kernels(model):
    """The parameters of the kernels of experts, and of the towers' hidden layers."""
    banks = [
        bank
        for layer in model.layers
        for bank in (layer, *(getattr(layer, part, None) for part in BANKS))
        if isinstance(bank, DenseExperts)
    ]
    kernels = [
        weight
        for bank in banks
        for layer in range(len(bank.units) - bank.name.startswith("towers"))
        for weight in bank.weights
        if weight.name == f"kernel_{layer}"
    ]
    return sum(math.prod(kernel.shape) for kernel in kernels)


def as_ranking(part):
    """A split whose ratings are 1 from four stars on, 0 below, and NaN if missing."""
    y = np.array(part.y, "float32")
    y[:, 1] = np.where(np.isnan(y[:, 1]), np.nan, y[:, 1] >= LIKED)
    return Split(part.x, y)


def measure_order(model, split):
    """AUC, and GAUC within the users, of each task."""
    predicted = model.predict(split.x, batch_size=4096, verbose=0)
    found = {}
    for column, name in enumerate(TASKS):
        known = ~np.isnan(split.y[:, column])
        labels, scores = split.y[known, column], predicted[name][known, 0]
        found[f"{name}_auc"] = area_under_curve(labels, scores)
        found[f"{name}_gauc"] = grouped_auc(split.x[known, 0], labels, scores)
    return found


def grouped_auc(groups, labels, scores):
    """The mean AUC within the groups, weighted by their rows.

    Groups with labels of one class only have none, and are left out.
    """
    _, place = np.unique(groups, return_inverse=True)
    rows = [place == number for number in range(place.max() + 1)]
    areas = np.array([area_under_curve(labels[own], scores[own]) for own in rows])
    mixed = ~np.isnan(areas)
    return float(np.average(areas[mixed], weights=np.sum(rows, axis=1)[mixed]))


def measure_serving(model, x, calls):
    """The latency of a SavedModel for 1 and for 256 rows.

    The latency is that of the fastest of some calls: other work on the machine makes
    calls slower, never faster.
    """
    import tensorflow as tf

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        serve: Any = tf.saved_model.load(folder)
        for size in (1, 256):
            batch, times = tf.constant(x[:size]), []
            for _ in range(calls):
                began = time.perf_counter()
                keras.tree.map_structure(np.asarray, serve.serve(batch))
                times.append(time.perf_counter() - began)
            found[f"milliseconds_{size}"] = 1e3 * min(times)
    return found
