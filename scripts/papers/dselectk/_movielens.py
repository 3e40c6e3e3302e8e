"""What the experiments on MovieLens share: the data, the model, what is measured."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.datasets import Split
from dselectk_keras.experts import Experts
from dselectk_keras.models import Task, build_multitask_model
from experiments import Experiment, Fact, area_under_curve, stand_in
from papers.data import movielens
from papers.dselectk._gates import look_at, new_gate, search_space

# The sizes of a run that takes seconds, and of one on two cores.
SMOKE = {
    "stand_in": True,
    "embedding": 2,
    "units": 4,
    "tower": 4,
    "epochs": (1,),
    "batch_size": 32,
    "bottoms": (4,),
}
CPU = {
    "version": "latest-small",
    "num_train": 40_000,
    "num_evaluated": 5_000,
    "embedding": 8,
    "units": 64,
    "tower": 64,
    "epochs": (3,),
    # A quarter of the paper's, as the experts' width is.
    "bottoms": (8, 64, 512, 1024, 2048),
}
SHAPES = ("num_nonzeros", "epochs", "units")  # Settings that need a program each.


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
        alphas: The weights of the task `watched`.
        embedding: Width of the embeddings of users and of films.
        num_experts: The number of experts.
        units: Width of an expert.
        tower: Width of the hidden layer of a task.
        dropout: Of the experts' outputs.
        batch_size: Examples in a step.
        learning_rates: Of Adagrad, to choose from.
        epochs: How many passes over the training data, to choose from.
        num_nonzeros: How many experts a sparse gate may choose, k, to choose from.
        entropies: Weights of DSelect-k's entropy term, to choose from.
        gammas: Widths of DSelect-k's smooth step, to choose from.
        sparsities: Penalties of the Gumbel-softmax gate, to choose from.
        bottoms: Widths of the shared bottom, to choose from.
    """

    version: str = "1m"
    num_train: int | None = None
    num_evaluated: int | None = None
    alphas: tuple[float, ...] = (0.1, 0.5, 0.9)
    embedding: int = 64
    num_experts: int = 8
    units: int = 256
    tower: int = 256
    dropout: float = 0.5
    batch_size: int = 128
    learning_rates: tuple[float, ...] = (0.001, 0.01, 0.1, 0.2, 0.3)
    epochs: tuple[int, ...] = (5, 10, 20, 30, 40, 50)
    num_nonzeros: tuple[int, ...] = (2, 4)
    entropies: tuple[float, ...] = (0.1, 1.0, 10.0)
    gammas: tuple[float, ...] = (1.0, 10.0)
    sparsities: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
    bottoms: tuple[int, ...] = (32, 256, 2048, 4096, 8192)

    def full_space(self, method):
        """All settings of a method, also those with one value."""
        space = search_space(self, method)
        return space if method.gate else space | {"units": self.bottoms}

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
        parts = {
            name: Split(part.x, np.asarray(part.y) - mean)
            for name in ("train", "validation", "test")
            for part in [getattr(data, name)]
        }
        return dataclasses.replace(data, **parts)

    def model(self, data, method, alpha, learning_rate, shape, **settings):
        """A compiled model.

        Args:
            data: From `data()`.
            method: A `Method`.
            alpha: Weight of the task `watched`, from 0 to 1.
            learning_rate: Of Adagrad.
            shape: A dict of the settings in `SHAPES` that the method has.
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
        steps = shape["epochs"] * Batches(data.train, self.batch_size).num_batches
        k = shape.get("num_nonzeros")
        gate: Any = new_gate(method.gate, k, steps, **settings)
        expert = keras.Sequential(
            [
                keras.layers.Dense(shape.get("units", self.units), "relu"),
                keras.layers.Dropout(self.dropout),
            ]
        )
        model = build_multitask_model(
            keras.Model(inputs, features),
            [
                Task("watched", "binary", tower=(self.tower,), weight=alpha),
                Task("rating", tower=(self.tower,), weight=1.0 - alpha),
            ],
            "mmoe" if method.gate else "shared_bottom",
            experts=Experts(expert, self.num_experts if method.gate else 1),
            gate=gate,
            per_example=method.per_example,
            label_average="labels",
        )
        model.compile(keras.optimizers.Adagrad(learning_rate))
        return model

    def values(self, name):
        """What the presets `cpu` and `paper` have in a field, to be read."""
        presets = self.presets()
        cpu, paper = (_list(getattr(presets[p], name)) for p in ("cpu", "paper"))
        return cpu if cpu == paper else f"{cpu} (`cpu`) or {paper} (`paper`)"

    def movielens_protocol(self):
        """The facts of the paper's protocol that all experiments here share."""
        presets: Mapping[str, Any] = self.presets()
        values, cpu, paper = self.values, presets["cpu"], presets["paper"]
        small = "to run on two cores"
        return [
            Fact(
                "Data",
                "MovieLens, 4,000 films and 6,000 users; 1.6 million training "
                "examples, 200,000 each for validation and test (Section 4.1)",
                "`cpu`: version latest-small, 9,724 films and 610 users, with half "
                f"stars; {cpu.num_train:,} examples for training, and "
                f"{cpu.num_evaluated:,} each for validation and test; `paper`: "
                "version 1m; eight tenths, and a tenth each",
                small,
            ),
            Fact(
                "Pairs without a rating",
                "not stated; the tasks are after Wang et al. (2020)",
                "as many as ratings, drawn uniformly; the rating loss is the mean over "
                "the pairs of a batch that have a rating",
                "1.6 million and twice 200,000 are two million examples, twice the "
                "ratings of MovieLens 1M",
            ),
            Fact(
                "Loss",
                "alpha L1 + (1 - alpha) L2, also for tuning and testing; alpha 0.1, "
                "0.5, 0.9",
                f"the same; alpha {values('alphas')}; the mean of the training ratings "
                "is subtracted",
                "a start near the mean; the squared error does not depend on it",
            ),
            Fact(
                "Embeddings",
                "not stated",
                f"of user and film, {values('embedding')} features each, concatenated",
            ),
            Fact(
                "Experts",
                "8, each a ReLU layer of 256 units, then dropout of 0.5 (Appendix D.1)",
                f"{self.num_experts}, each a ReLU layer of {values('units')} units, "
                f"then dropout of {values('dropout')}",
                small,
            ),
            Fact(
                "Task networks",
                "a ReLU layer of 256 units, then one unit (Appendix D.1)",
                f"a ReLU layer of {values('tower')} units, then one unit",
                small,
            ),
            Fact(
                "Optimizer",
                "Adagrad, batches of 128 (Appendix D.1)",
                f"Adagrad, batches of {values('batch_size')}",
            ),
            Fact(
                "Learning rate",
                "tuned over 0.001, 0.01, 0.1, 0.2, 0.3",
                f"tuned over {values('learning_rates')}",
            ),
            Fact(
                "Epochs",
                "tuned over 5, 10, 20, 30, 40, 50",
                f"tuned over {_list(paper.epochs)} (`paper`), or "
                f"{_list(cpu.epochs)} (`cpu`)",
                small,
            ),
            Fact("k", "tuned over 2, 4", f"tuned over {values('num_nonzeros')}"),
            Fact(
                "lambda and gamma of DSelect-k",
                "tuned over 0.1, 1, 10 and 1, 10",
                f"tuned over {values('entropies')} and {values('gammas')}; a "
                "per-example gate's entropy is a mean over the batch",
                "the paper's objective sums it over all examples while it averages "
                "the loss",
            ),
            Fact(
                "Tuning",
                "random grid search for each alpha, 5 trials per grid point on average",
                f"random search over the grid for each alpha: {values('trials')} "
                "settings, one run each; by the validation loss",
                small,
            ),
            Fact(
                "Admissible",
                "DSelect-k, static: S(Z) is binary (Section 3.1.3); per-example: at "
                "most k experts on average (Section 3.2)",
                "the same, on validation data; if all settings that were tried break "
                "the rule, the best of them is taken",
                "few settings are tried",
            ),
            Fact("Repetitions", "100", values("seeds"), small),
        ]


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


def _list(values):
    """A value of a field, to be read."""
    if isinstance(values, tuple):
        return ", ".join(f"{value:g}" for value in values)
    if values is None:
        return "all"
    return f"{values:,}" if isinstance(values, int) else str(values)


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
