"""What the experiments on MovieLens share: the data, the model, what is measured."""

import dataclasses
from typing import Any

import keras
import numpy as np

from dselectk_keras import datasets
from dselectk_keras.datasets import Split
from dselectk_keras.experiments import Experiment, area_under_curve, stand_in
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import Task, build_multitask_model
from dselectk_keras.training import Batches
from papers.dselectk._gates import look_at, new_gate

# The sizes of a run that takes seconds, and of one on two cores.
SMOKE = {
    "stand_in": True,
    "embedding": 2,
    "units": 4,
    "tower": 4,
    "epochs": 1,
    "batch_size": 32,
}
CPU = {
    "version": "latest-small",
    "num_train": 40_000,
    "num_evaluated": 5_000,
    "embedding": 8,
    "units": 64,
    "tower": 32,
    "epochs": 3,
    "batch_size": 256,
}


@dataclasses.dataclass(frozen=True)
class MovieLensExperiment(Experiment):
    r"""An experiment on MovieLens: is a film watched, and how is it rated?

    The paper's loss is $\alpha L_1 + (1 - \alpha) L_2$, with the cross-entropy $L_1$
    of `watched` and the squared error $L_2$ of `rating`, over the films that have one.

    Args:
        version: Of MovieLens; the paper has `"1m"`.
        num_train: How many pairs of a user and a film are trained on; `None` is all.
        num_evaluated: How many there are for validation, and for test; `None` is a
            tenth of all each.
        embedding: Width of the embeddings of users and of films.
        num_experts: The number of experts.
        units: Width of an expert.
        tower: Width of the hidden layer of a task.
        dropout: Of the embeddings.
        num_nonzeros: How many experts a sparse gate may choose, k.
        epochs: How many passes over the training data.
        batch_size: Examples in a step.
    """

    version: str = "1m"
    num_train: int | None = None
    num_evaluated: int | None = None
    embedding: int = 64
    num_experts: int = 8
    units: int = 256
    tower: int = 256
    dropout: float = 0.5
    num_nonzeros: int = 2
    epochs: int = 20
    batch_size: int = 128

    def data(self):
        """The data: the same for all runs, with ratings whose mean is taken off."""
        if self.stand_in:
            data = _pairs_of_noise()
        else:
            data = datasets.load(
                "movielens",
                version=self.version,
                num_train=self.num_train,
                num_validation=self.num_evaluated,
                num_test=self.num_evaluated,
                data_dir=self.data_dir,
            )
        mean = np.array([0.0, np.nanmean(np.asarray(data.train.y)[:, 1])], "float32")
        parts = {
            name: Split(part.x, np.asarray(part.y) - mean)
            for name in ("train", "validation", "test")
            for part in [getattr(data, name)]
        }
        return dataclasses.replace(data, **parts)

    def steps(self, data):
        """How many steps a run has."""
        return self.epochs * Batches(data.train, self.batch_size).num_batches

    def model(self, data, method, alpha, learning_rate, **settings):
        """A compiled model.

        Args:
            data: From `data()`.
            method: A `Method`.
            alpha: Weight of the task `watched`, from 0 to 1.
            learning_rate: Of Adam.
            **settings: What `new_gate` takes.

        Returns:
            A `MultitaskModel`.
        """
        inputs = keras.Input((2,), dtype="int32", name="pair")
        features = keras.layers.Concatenate()(
            [
                keras.layers.Embedding(size, self.embedding)(inputs[:, column])
                for column, size in enumerate(data.info["vocabulary_sizes"])
            ]
        )
        features = keras.layers.Dropout(self.dropout)(features)
        shared = method.gate is None
        # One network is as wide as the experts that a task may choose.
        units = self.units * (self.num_nonzeros if shared else 1)
        gate: Any = new_gate(
            method.gate, self.num_nonzeros, self.steps(data), **settings
        )
        model = build_multitask_model(
            keras.Model(inputs, features),
            [
                Task("watched", "binary", tower=(self.tower,), weight=alpha),
                Task("rating", tower=(self.tower,), weight=1.0 - alpha),
            ],
            "shared_bottom" if shared else "mmoe",
            experts=DenseExperts(self.num_experts, [units]),
            gate=gate,
            per_example=method.per_example,
            label_average="labels",
        )
        model.compile(keras.optimizers.Adam(learning_rate))
        return model


def measure(model, split, alpha):
    """What a trained model comes to.

    Args:
        model: A `MultitaskModel` of the two tasks.
        split: A `Split`.
        alpha: Weight of the task `watched`.

    Returns:
        A dict: what `task_numbers` gives, and what `look_at` has seen of the gates.
    """
    found, gates = look_at(model, split.x)
    watched, rating = (found[name][:, 0] for name in ("watched", "rating"))
    return task_numbers(watched, rating, split.y, alpha) | gates


def task_numbers(watched, rating, labels, alpha):
    """The losses and metrics of the two tasks.

    Args:
        watched: Array `(samples,)` of probabilities.
        rating: Array `(samples,)` of ratings.
        labels: Array `(samples, 2)`; a rating that is missing is NaN.
        alpha: Weight of the task `watched`.

    Returns:
        A dict.
    """
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


def _pairs_of_noise():
    """Noise in the shape of MovieLens."""
    sizes = (20, 30)
    data = stand_in((2,), {"watched": "binary", "rating": "regression"})
    parts = {}
    for name in ("train", "validation", "test"):
        part = getattr(data, name)
        y = part.y.copy()
        y[y[:, 0] == 0, 1] = np.nan
        parts[name] = Split((part.x * sizes).astype("int32"), y)
    return dataclasses.replace(data, **parts, info={"vocabulary_sizes": sizes})
