"""Data, training methods and numbers that the experiments of this paper share."""

import abc
import dataclasses

import keras
import numpy as np

import dselectk_keras as dk
from research.engine import Experiment, preset, stand_in
from research.engine.search import best_run
from research.papers import citations
from research.papers.data.few_classes import few_classes, standardized
from research.papers.specialization import _mixture
from research.papers.specialization._mixture import DATA

NUMBERS = "error", "mutual_information", "sample_entropy", "utilization_entropy"
CHUNK = 1_000  # Images that are evaluated at once.


# Methods of training a mixture: the gate, and the weights of its penalty.
METHODS = {
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
    needs = ("MNIST, Fashion-MNIST or CIFAR-100", 3 * 32 * 32)

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
            return standardized(stand_in(about.shape, classes, size))
        return few_classes(name, self.num_train, self.num_test, self.data_dir)

    def fit(self, build, data, jobs, settings=None):
        """Compile and train what `build` makes of the settings, by default a job's."""
        own = {name: [job.settings[name] for job in jobs] for name in jobs[0].settings}

        def compiled(_, **chosen):
            model = build(**chosen)
            optimizer = keras.optimizers.Adam(self.learning_rate)
            model.compile(optimizer, "sparse_categorical_crossentropy")
            return model

        runs = dk.replicate(
            compiled,
            tuple(data.train),
            seeds=[job.seed for job in jobs],
            settings=own if settings is None else settings,
            epochs=self.epochs,
            batch_size=self.batch_size,
            verbose=0,
        )
        return [copy.model for copy in runs.copies]

    def teach(self, method, name, num_experts, data, jobs):
        """Train mixtures in one of the `METHODS`."""
        gate, tuned = METHODS[method]

        def build(importance=0.0, beta_s=0.0, beta_d=0.0):
            penalty = None
            if "importance" in tuned:
                penalty = dk.regularizers.ImportanceRegularizer(importance)
            elif "beta_s" in tuned:
                penalty = dk.regularizers.SampleSimilarityRegularizer(beta_s, beta_d)
            return _mixture.mixture(DATA[name], num_experts, gate, penalty)

        return self.fit(build, data, jobs)

    def distilled(self, teachers, data, jobs):
        """Students with an original gate, on the frozen experts of their teachers."""

        def build(teacher):
            student = dk.distill(teachers[teacher], _mixture.original_gate())
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
    images, classes = data.test.x, data.test.y[:, 0]
    weights = predicted(lambda x: _mixture.weights_of_experts(model, x), images)
    about = {"num_experts": num_experts, "num_classes": data.num_classes[0]}

    def result(metric, *seen):
        return keras.ops.convert_to_numpy(metric(*seen, weights))

    found = {
        **classified(model, data),
        "mutual_information": result(dk.metrics.MutualInformation(**about), classes),
        "table": result(dk.metrics.SelectionTable(**about), classes).astype(int),
        "sample_entropy": result(dk.metrics.SampleEntropy()),
        "utilization_entropy": result(dk.metrics.UtilizationEntropy(num_experts)),
    }
    return {prefix + name: number for name, number in found.items()}


def reported(results, arm, prefix=""):
    """The run that the paper would report: the one with the lowest training error."""
    return best_run(results.ran(arm), prefix + "train_error")
