"""What the experiments on MovieLens share: the data, the model, what is measured."""

import abc
import dataclasses
from typing import Any

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.callbacks import GateRecorder
from dselectk_keras.datasets import Split
from dselectk_keras.experts import Experts
from dselectk_keras.models import Task, build_multitask_model
from experiments import Experiment, area_under_curve, preset, stand_in
from papers.data import movielens
from papers.dselectk._gates import (
    METHODS,
    Method,
    choices,
    decided,
    is_admissible,
    look_at,
    movement,
    new_gate,
    search_space,
    within_rules,
)

SHAPES = ("num_nonzeros", "epochs", "units")  # Settings that need a program each.
GATES = ("DSelect-k", "Top-k")


@dataclasses.dataclass(frozen=True)
class MovieLensExperiment(Experiment):
    r"""An experiment on MovieLens: is a film watched, and how is it rated?

    The paper's loss is $\alpha L_1 + (1 - \alpha) L_2$, with the cross-entropy $L_1$
    of `watched` and the squared error $L_2$ of `rating`, over the films that have one.
    """

    seeds: int = preset(5, paper=100, smoke=1)
    trials: int = preset(4, paper=30, smoke=1)
    stand_in: bool = preset(False, smoke=True)
    version: str = preset("latest-small", paper="1m", smoke="1m")
    # Pairs of a user and a film; `None` is all, and a tenth each to evaluate.
    num_train: int | None = preset(40_000, paper=None, smoke=None)
    num_evaluated: int | None = preset(5_000, paper=None, smoke=None)
    alphas: tuple[float, ...] = preset((0.1, 0.5, 0.9), smoke=(0.5,))  # Of `watched`.
    embedding: int = preset(8, paper=64, smoke=2)
    num_experts: int = 8
    units: int = preset(64, paper=256, smoke=4)  # Of an expert.
    tower: int = preset(64, paper=256, smoke=4)  # Units of a task's hidden layer.
    dropout: float = 0.5  # Of the experts' outputs.
    batch_size: int = preset(128, smoke=32)
    # The rest is tuned.
    learning_rates: tuple[float, ...] = (0.001, 0.01, 0.1, 0.2, 0.3)  # Of Adagrad.
    epochs: tuple[int, ...] = preset((3,), paper=(5, 10, 20, 30, 40, 50), smoke=(1,))
    num_nonzeros: tuple[int, ...] = (2, 4)  # k.
    entropies: tuple[float, ...] = (0.1, 1.0, 10.0)
    gammas: tuple[float, ...] = (1.0, 10.0)
    sparsities: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
    # A quarter of the paper's, as the experts' width is.
    bottoms: tuple[int, ...] = preset(
        (8, 64, 512, 1024, 2048), paper=(32, 256, 2048, 4096, 8192), smoke=(4,)
    )

    def full_space(self, method):
        """All settings of a method, also those with one value."""
        space = search_space(self, method)
        return space if method.gate else space | {"units": self.bottoms}

    def space(self, arm):
        method, _ = self.arms[arm]
        return choices(self.full_space(method))

    def data(self):
        """The data: the same for all runs, with ratings whose mean is taken off."""
        if self.stand_in:
            data = _pairs_of_noise()
        else:
            data = movielens(
                version=self.version,
                num_train=self.num_train,
                num_validation=self.num_evaluated,
                num_test=self.num_evaluated,
                data_dir=self.data_dir,
            )
        mean = np.array([0.0, np.nanmean(np.asarray(data.train.y)[:, 1])], "float32")
        return _changed(data, lambda part: Split(part.x, np.asarray(part.y) - mean))

    def model(self, data, method, alpha, learning_rate, shape, **settings):
        """A compiled model.

        Args:
            data: From `data()`.
            method: A `Method`.
            alpha: Weight of the task `watched`, from 0 to 1.
            learning_rate: Of Adagrad.
            shape: A dict of the settings in `SHAPES` that the method has.
            **settings: What `new_gate` takes.
        """
        inputs = keras.Input((2,), dtype="int32", name="pair")
        sizes = enumerate(data.info["vocabulary_sizes"])
        parts = [
            keras.layers.Embedding(size, self.embedding)(inputs[:, column])
            for column, size in sizes
        ]
        features = keras.layers.Concatenate()(parts)
        steps = shape["epochs"] * Batches(data.train, self.batch_size).num_batches
        k = shape.get("num_nonzeros")
        gate: Any = new_gate(method.gate, k, steps, **settings)
        hidden = keras.layers.Dense(shape.get("units", self.units), "relu")
        expert = keras.Sequential([hidden, keras.layers.Dropout(self.dropout)])
        tower = (self.tower,)
        model = build_multitask_model(
            keras.Model(inputs, features),
            [
                Task("watched", "binary", tower=tower, weight=alpha),
                Task("rating", tower=tower, weight=1.0 - alpha),
            ],
            "mmoe" if method.gate else "shared_bottom",
            experts=Experts(expert, self.num_experts if method.gate else 1),
            gate=gate,
            per_example=method.per_example,
            label_average="labels",
        )
        model.compile(keras.optimizers.Adagrad(learning_rate))
        return model

    def judged(self, model, data, method, alpha, num_nonzeros):
        """What a trained model comes to: on test data, and by validation."""
        validation = measure(model, data.validation, alpha)
        return measure(model, data.test, alpha) | {
            "objective": validation["loss"],
            "admissible": is_admissible(validation, method, num_nonzeros),
        }


@dataclasses.dataclass(frozen=True)
class RecordedExperiment(MovieLensExperiment, abc.ABC):
    """DSelect-k and Top-k with static gates, recorded after every step."""

    points: int = preset(80, smoke=3)  # Records of the first seed that are kept.

    shown_runs = "dselectk-fig6"  # Figure 6 and Table 4 show the same runs.

    @property
    def arms(self):
        methods = {name: METHODS[f"{name}, static"] for name in GATES}
        methods |= {name: Method(make) for name, make in self.gates.items()}
        return {
            name_arm(name, alpha): (method, alpha)
            for alpha in self.alphas
            for name, method in methods.items()
        }

    def run(self, arm, jobs):
        data = self.data()
        return [self._run(*self.arms[arm], data, job) for job in jobs]

    def kept(self, results):
        """For each reported run of DSelect-k, whether it has decided, as it must."""
        arms = (name_arm("DSelect-k", alpha) for alpha in self.alphas)
        return np.concatenate([within_rules(results, arm) for arm in arms])

    def _run(self, method, alpha, data, job):
        keras.utils.set_random_seed(job.seed)
        fixed = {name: each[0] for name, each in self.full_space(method).items()}
        settings = fixed | job.settings
        shape = {name: settings.pop(name) for name in SHAPES if name in settings}
        model = self.model(data, method, alpha, shape=shape, **settings)
        recorder = GateRecorder(every=1)
        model.fit(
            Batches(data.train, self.batch_size, job.seed),
            epochs=shape["epochs"],
            shuffle=False,
            callbacks=[recorder],
            verbose=0,
        )
        judged = self.judged(model, data, method, alpha, shape["num_nonzeros"])
        record = recorder.history["mmoe"]
        weights, binary = record["weights"], record.get("binary")
        found = {name: judged[name] for name in ("objective", "admissible", "loss")}
        found |= {
            "decided": None if binary is None else decided(binary),
            "evaluated": float((weights > 0).any(axis=1).sum(axis=1).mean()),
            **movement(weights),
        }
        if job.seed:
            return found
        kept = np.linspace(0, len(weights) - 1, min(self.points, len(weights)))
        kept = kept.round().astype(int)
        return found | {
            "steps": recorder.history.steps[kept],
            "weights": weights[kept].astype("float64").round(4),
        }


def name_arm(gate, alpha):
    """The name of an arm."""
    return f"{gate}, alpha {alpha}"


def measure(model, split, alpha):
    """The numbers of the tasks, and what `look_at` has seen of the gates."""
    found, gates = look_at(model, split.x)
    watched, rating = (found[name][:, 0] for name in ("watched", "rating"))
    return task_numbers(watched, rating, split.y, alpha) | gates


def task_numbers(watched, rating, labels, alpha):
    """The losses and metrics of the two tasks; a rating that is missing is NaN."""
    truth, probability = labels[:, 0] == 1, watched.astype("float64").clip(1e-7, 1)
    probability = probability.clip(max=1 - 1e-7)
    entropy = -np.log(np.where(truth, probability, 1 - probability)).mean()
    error = float(np.nanmean((rating - labels[:, 1]) ** 2))
    return {
        "loss": float(alpha * entropy + (1 - alpha) * error),
        "watched_loss": float(entropy),
        "watched_auc": area_under_curve(truth, watched),
        "watched_accuracy": float(np.mean((watched > 0.5) == truth)),
        "rating_mse": error,
    }


def _changed(data, change, **fields):
    names = ("train", "validation", "test")
    parts = {name: change(getattr(data, name)) for name in names}
    return dataclasses.replace(data, **parts, **fields)


def _pairs_of_noise():
    """Noise in the shape of MovieLens."""
    sizes = (20, 30)

    def paired(part):
        y = part.y.copy()
        y[y[:, 0] == 0, 1] = np.nan
        return Split((part.x * sizes).astype("int32"), y)

    data = stand_in((2,), {"watched": "binary", "rating": "regression"})
    return _changed(data, paired, info={"vocabulary_sizes": sizes})
