"""What the experiments of this paper share: data, ways to train, numbers."""

import abc
import dataclasses
import functools
from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras import datasets
from dselectk_keras.datasets import Split
from dselectk_keras.experiments import Experiment, stand_in
from dselectk_keras.metrics import (
    MutualInformation,
    SampleEntropy,
    SelectionTable,
    UtilizationEntropy,
)
from dselectk_keras.models import distill
from dselectk_keras.training import replicate
from papers.specialization import _mixture

NAMES = {"mnist": "MNIST", "fashion_mnist": "FMNIST", "fmnist_mnist": "FMNIST + MNIST"}
CLASSES = {"mnist": 10, "fashion_mnist": 10, "fmnist_mnist": 12}
SHAPE = (28, 28, 1)
BINS = 10  # Of the histogram of the largest weights.
NUMBERS = {
    "error": "error",
    "mutual_information": "I(E;Y)",
    "sample_entropy": "H_s",
    "utilization_entropy": "H_u",
}


class Way(NamedTuple):
    """A way to train a mixture.

    Args:
        gate: `"original"` or `"attentive"`.
        penalty: `"importance"`, `"similarity"` or `None`.
    """

    gate: str
    penalty: str | None = None


# Each is trained; of the attentive ones, students are distilled besides.
WAYS = {
    "original": Way("original"),
    "original, importance": Way("original", "importance"),
    "original, L_s": Way("original", "similarity"),
    "attentive": Way("attentive"),
    "attentive, importance": Way("attentive", "importance"),
    "attentive, L_s": Way("attentive", "similarity"),
}


@dataclasses.dataclass(frozen=True)
class Images(Experiment, abc.ABC):
    r"""Mixtures of small convolutional networks, on images of few classes.

    An expert has one filter of 3 x 3, ReLU, a maximum over 2 x 2, and dense layers of 5
    and 32 units before the probabilities; the gate's network has a filter and layers of
    128 and 32. The model gives the mixture of the experts' probabilities, and learns
    from its cross-entropy. These are the networks in the authors' repository.

    The weights of an example sum to one, so that of L_s's two weights only
    $\beta_s / M + \beta_d / (M^2 - M)$ matters, apart from a constant: one of them is
    tuned, and $\beta_s$ is the authors' $10^{-6}$ throughout.

    Args:
        num_train: Images to train on.
        num_validation: Images to choose settings by.
        num_test: Images to report on.
        epochs: Passes over the training images.
        batch_size: Images in a step.
        learning_rate: Of Adam.
    """

    num_train: int = 5_120
    num_validation: int = 2_048
    num_test: int = 4_096
    epochs: int = 25
    batch_size: int = 64
    learning_rate: float = 1e-3

    def data(self, name):
        """A data set, with pixels of mean 0 and variance 1."""
        if self.stand_in:
            return _standardized(stand_in(SHAPE, {"class": CLASSES[name]}))
        sizes = self.num_train, self.num_validation, self.num_test
        return _load(name, sizes, self.data_dir)

    def fit(self, build, data, jobs, epochs=None, **settings):
        """Train a model for each job.

        Args:
            build: A function of a seed, and of settings, that returns a compiled model.
            data: A `Dataset`.
            jobs: A list of `Job`.
            epochs: How many; `None` is the field's.
            **settings: Lists with a number for each job, beside the jobs' own settings.

        Returns:
            A list of trained models.
        """
        own = {name: [job.settings[name] for job in jobs] for name in jobs[0].settings}
        runs = replicate(
            build,
            tuple(data.train),
            seeds=[job.seed for job in jobs],
            settings={**own, **settings},
            epochs=epochs or self.epochs,
            batch_size=self.batch_size,
            verbose=0,
        )
        return [runs.model(number) for number in range(len(runs))]

    def teach(self, way, num_experts, data, jobs, **settings):
        """Train mixtures.

        Args:
            way: A `Way`.
            num_experts: How many experts they have.
            data: A `Dataset`.
            jobs: A list of `Job`, with the weight of the penalty among the settings.
            **settings: Further settings, as in `fit`.

        Returns:
            A list of trained models.
        """

        def build(_, importance=0.0, beta_d=0.0):
            gate = _mixture.gate_of(way.gate, importance)
            model = _mixture.mixture(SHAPE, num_classes(data), num_experts, gate)
            if way.penalty == "similarity":
                model.penalty = _mixture.similarity(beta_d)
            return _mixture.compiled(model, self.learning_rate)

        return self.fit(build, data, jobs, **settings)

    def distilled(self, teachers, data, jobs):
        """Students with an ordinary gate, on the frozen experts of their teachers.

        Args:
            teachers: A list of models with attentive gates.
            data: A `Dataset`.
            jobs: A list of as many `Job`.

        Returns:
            A list of trained models.
        """
        plain = [keras.Model(each.inputs[0], each.outputs[0]) for each in teachers]

        def build(_, teacher):
            student = distill(plain[teacher], _mixture.gate_of("original"))
            student.get_layer("filters").trainable = False
            return _mixture.compiled(student, self.learning_rate)

        bare = [job._replace(settings={}) for job in jobs]
        return self.fit(build, data, bare, teacher=range(len(jobs)))


def num_classes(data):
    """How many classes a data set of one task has."""
    return data.num_classes[0]


def measured(model, data, num_experts):
    """The numbers of the paper's tables, on the test images.

    Args:
        model: A trained mixture.
        data: A `Dataset`.
        num_experts: How many experts it has.

    Returns:
        A dict: the test error, $I(E; Y)$, $H_s$ and $H_u$ in bits; how many images of
        each class choose each expert; the mean weight of each expert; and how many
        images have a largest weight in each of ten intervals from 0 to 1.
    """
    images, labels = data.test
    weights = keras.ops.convert_to_numpy(_mixture.weights_of_experts(model, images))
    about = {"num_experts": num_experts, "num_classes": num_classes(data)}
    metrics: dict[str, Any] = {
        "mutual_information": MutualInformation(**about),
        "table": SelectionTable(**about),
    }
    for metric in metrics.values():
        metric.update_state(labels[:, 0], weights)
    metrics["sample_entropy"] = SampleEntropy()
    metrics["utilization_entropy"] = UtilizationEntropy(num_experts)
    for name in ("sample_entropy", "utilization_entropy"):
        metrics[name].update_state(weights)
    found = {
        name: keras.ops.convert_to_numpy(metric.result())
        for name, metric in metrics.items()
    }
    found["table"] = found["table"].astype(int)
    found["usage"] = weights.mean(axis=0)
    sure, _ = np.histogram(weights.max(axis=1).clip(max=1), BINS, (0, 1))
    return {"error": error(model, data.test), **found, "sure": sure}


def error(model, split):
    """The share of images that a model takes for another class.

    Args:
        model: A model that gives probabilities.
        split: A `Split`.

    Returns:
        A number.
    """
    found = keras.ops.convert_to_numpy(model(split.x)).argmax(axis=-1)
    return float(np.mean(found != split.y[:, 0]))


def own_numbers(results, arm, prefix=""):
    """The columns of a table: means and standard errors, to be read.

    Args:
        results: A `Results`.
        arm: Name of an arm.
        prefix: Before the names of the numbers, such as `"distilled_"`.

    Returns:
        A list of strings.
    """
    return [results.text(arm, prefix + number) for number in NUMBERS]


@functools.lru_cache(maxsize=4)
def _load(name, sizes, data_dir):
    names = ("num_train", "num_validation", "num_test")
    options: dict[str, Any] = dict(zip(names, sizes, strict=True))
    if name == "fmnist_mnist":
        options["digits"] = tuple(range(4, 10))  # As in the authors' notebook.
    return _standardized(datasets.load(name, data_dir=data_dir, **options))


def _standardized(data):
    mean, spread = data.train.x.mean(), data.train.x.std()
    parts = {
        name: Split((split.x - mean) / spread, split.y)
        for name, split in (
            ("train", data.train),
            ("validation", data.validation),
            ("test", data.test),
        )
    }
    return dataclasses.replace(data, **parts)
