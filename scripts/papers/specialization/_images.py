"""What the experiments of this paper share: data, ways to train, numbers."""

import abc
import dataclasses
import functools

import keras
import numpy as np

from dselectk_keras import metrics, regularizers
from dselectk_keras.datasets import Split
from dselectk_keras.models import distill
from dselectk_keras.replicate import replicate
from experiments import Experiment, best_run, preset, stand_in
from papers import citations
from papers.data import load
from papers.data.changes import changed, only_tasks
from papers.specialization import _mixture
from papers.specialization._mixture import DATA

NUMBERS = "error", "mutual_information", "sample_entropy", "utilization_entropy"
CHUNK = 1_000  # Images that are evaluated at once.


# Ways to train a mixture: the gate, and the weights of its penalty.
WAYS = {
    "original": ("original", ()),
    "original, importance": ("original", ("importance",)),
    "original, L_s": ("original", ("beta_s", "beta_d")),
    "attentive": ("attentive", ()),
    "attentive, importance": ("attentive", ("importance",)),
    "attentive, L_s": ("attentive", ("beta_s", "beta_d")),
}


@dataclasses.dataclass(frozen=True)
class Images(Experiment, abc.ABC):
    """Mixtures of small convolutional networks, on images of few classes.

    The model gives the mixture of the experts' probabilities, and learns from its
    cross-entropy. The weights of the penalties are chosen by the training error, as in
    the paper, so that there are no validation images.
    """

    paper = citations.SPECIALIZATION

    seeds: int = preset(5, smoke=1)
    stand_in: bool = preset(False, smoke=True)
    num_train: int = 10_000
    num_test: int = 2_000
    epochs: int = preset(20, smoke=1)
    batch_size: int = preset(64, smoke=48)
    learning_rate: float = 1e-3

    def data(self, name):
        """A data set, with pixels of mean 0 and variance 1."""
        about = DATA[name]
        if self.stand_in:
            classes, size = {"class": about.num_classes}, 2 * self.batch_size
            return _standardized(stand_in(about.shape, classes, size))
        return _load(name, self.num_train, self.num_test, self.data_dir)

    def fit(self, build, data, jobs, settings=None):
        """Compile and train what `build` makes of the settings, by default a job's."""
        own = {name: [job.settings[name] for job in jobs] for name in jobs[0].settings}

        def compiled(_, **chosen):
            model = build(**chosen)
            optimizer = keras.optimizers.Adam(self.learning_rate)
            model.compile(optimizer, "sparse_categorical_crossentropy")
            return model

        runs = replicate(
            compiled,
            tuple(data.train),
            seeds=[job.seed for job in jobs],
            settings=own if settings is None else settings,
            epochs=self.epochs,
            batch_size=self.batch_size,
            verbose=0,
        )
        return [copy.model for copy in runs.copies]

    def teach(self, way, name, num_experts, data, jobs):
        """Train mixtures in one of the `WAYS`."""
        gate, tuned = WAYS[way]

        def build(importance=0.0, beta_s=0.0, beta_d=0.0):
            penalty = None
            if "importance" in tuned:
                penalty = regularizers.ImportanceRegularizer(importance)
            elif "beta_s" in tuned:
                penalty = regularizers.SampleSimilarityRegularizer(beta_s, beta_d)
            return _mixture.mixture(DATA[name], num_experts, gate, penalty)

        return self.fit(build, data, jobs)

    def distilled(self, teachers, data, jobs):
        """Students with an original gate, on the frozen experts of their teachers."""

        def build(teacher):
            student = distill(teachers[teacher], _mixture.original_gate())
            # The last hidden layer of an original gate has an activation.
            network = student.get_layer("moe").routing_network
            network.layers[-1].activation = keras.activations.relu
            for layer in student.layers:
                if layer.name == "filters":
                    layer.trainable = False
            return student

        return self.fit(build, data, jobs, {"teacher": range(len(jobs))})


def predicted(model, images):
    """The probabilities that a model gives, some images at a time."""
    parts = range(0, len(images), CHUNK)
    return np.concatenate(
        [keras.ops.convert_to_numpy(model(images[i : i + CHUNK])) for i in parts]
    )


def error_and_loss(model, split):
    """The share of images that a model takes for another class, and its loss."""
    found, labels = predicted(model, split.x), split.y[:, 0].astype(int)
    right = found[np.arange(len(labels)), labels]
    loss = -np.log(np.maximum(right, keras.config.epsilon())).mean()
    return float(np.mean(found.argmax(axis=-1) != labels)), float(loss)


def classified(model, data):
    """The errors of a model, and its training loss. Tuning is by the training error."""
    train_error, train_loss = error_and_loss(model, data.train)
    return {
        "error": error_and_loss(model, data.test)[0],
        "train_error": train_error,
        "train_loss": train_loss,
        "objective": train_error,
    }


def measured(model, data, num_experts, prefix=""):
    """The numbers of the paper's tables, under names that begin with `prefix`."""
    images, labels = data.test
    weights = predicted(lambda x: _mixture.weights_of_experts(model, x), images)
    about = {"num_experts": num_experts, "num_classes": data.num_classes[0]}

    def result(metric, *seen):
        return keras.ops.convert_to_numpy(metric(*seen, weights))

    found = {
        **classified(model, data),
        "mutual_information": result(metrics.MutualInformation(**about), labels[:, 0]),
        "table": result(metrics.SelectionTable(**about), labels[:, 0]).astype(int),
        "sample_entropy": result(metrics.SampleEntropy()),
        "utilization_entropy": result(metrics.UtilizationEntropy(num_experts)),
    }
    return {prefix + name: number for name, number in found.items()}


def reported(results, arm, prefix=""):
    """The run that the paper would report: the one with the lowest training error."""
    return best_run(results.of(arm), prefix + "train_error")


@functools.lru_cache(maxsize=4)
def _load(name, num_train, num_test, data_dir):
    # A loader holds out one image at least: here it is put back.
    sizes = {"num_train": num_train - 1, "num_validation": 1, "num_test": num_test}
    data = load(name, data_dir=data_dir, **sizes)
    pairs = zip(data.train, data.validation, strict=True)
    data = dataclasses.replace(data, train=Split(*map(np.concatenate, pairs)))
    if name == "cifar100":
        data = only_tasks(data, {"fine": "fine"})
    if name == "multi_mnist":
        data = _pairs(data)
    return _standardized(data)


def _pairs(data):
    """Multi-MNIST at half its width and height, with pairs of digits as classes."""

    def halved(split):
        count, height, width, _ = split.x.shape
        pixels = split.x.reshape(count, height // 2, 2, width // 2, 2, 1)
        return Split(pixels.mean(axis=(2, 4)), 10 * split.y[:, :1] + split.y[:, 1:])

    fields = {"task_names": ("pair",), "task_kinds": data.task_kinds[:1]}
    return changed(data, halved, num_classes=(100,), **fields)


def _standardized(data):
    mean, spread = data.train.x.mean(), data.train.x.std()
    return changed(data, lambda split: split._replace(x=(split.x - mean) / spread))
