"""The networks of the paper, on images: one filter, and two hidden layers."""

import itertools
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates import AttentiveGate, SoftmaxGate
from dselectk_keras.layers import MoE
from dselectk_keras.regularizers import (
    ImportanceRegularizer,
    SampleSimilarityRegularizer,
)

EXPERT_UNITS = (5, 32)  # The hidden layers of an expert.
GATE_UNITS = (128, 32)  # Those of the gate's network.
BETA_S = 1e-6  # The weight of pairs at the same expert; see `Images`.
POOLED = tuple(itertools.product((0, 1), repeat=2))  # Places that one maximum is over.
KERNEL = tuple(itertools.product(range(3), repeat=2))  # Places of a filter.


def _places():
    """Which of 4 x 4 pixels each weight of a filter meets, at each pooled place."""
    places = np.zeros((16, len(POOLED), len(KERNEL)), "float32")
    for pool, (a, b) in enumerate(POOLED):
        for weight, (i, j) in enumerate(KERNEL):
            places[4 * (a + i) + b + j, pool, weight] = 1
    return places


@keras.saving.register_keras_serializable(package="dselectk_keras.experiments")
class Filters(keras.layers.Layer):
    """Filters of 3 x 3, ReLU, and the maximum over 2 x 2, as one matrix product.

    It computes what `Conv2D` and `MaxPooling2D` do, several times faster on a
    processor where there are few filters of one channel.

    Args:
        filters: How many. Each starts as one alone would.
        **kwargs: The arguments of `keras.Layer`.

    Call arguments:
        inputs: Images `(batch, height, width, 1)`.

    Returns:
        A tensor `(batch, filters, features)`.
    """

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters

    def build(self, input_shape):
        """Create the filters."""
        self.size = tuple((side - 2) // 2 for side in input_shape[1:3])
        self.kernel = self.add_weight(
            shape=(len(KERNEL), self.filters),
            initializer=keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform"),
            name="kernel",
        )
        self.bias = self.add_weight(
            shape=(self.filters, 1), initializer="zeros", name="bias"
        )
        self.built = True

    def call(self, inputs):
        """The product, over all images at once."""
        height, width = self.size
        shifted = [
            inputs[:, p : p + 2 * height - 1 : 2, q : q + 2 * width - 1 : 2, 0]
            for p, q in itertools.product(range(4), repeat=2)
        ]
        pixels = ops.reshape(ops.stack(shifted), (16, -1))
        kernel = ops.einsum("spk,kf->pfs", _places(), self.kernel)
        outputs = ops.matmul(ops.reshape(kernel, (-1, 16)), pixels)
        outputs = ops.max(ops.reshape(outputs, (4, self.filters, -1)), axis=0)
        outputs = ops.relu(outputs + self.bias)
        outputs = ops.reshape(outputs, (self.filters, -1, height * width))
        return ops.transpose(outputs, (1, 0, 2))

    def compute_output_shape(self, input_shape):
        """The shape of the outputs."""
        height, width = ((side - 2) // 2 for side in input_shape[1:3])
        return input_shape[0], self.filters, height * width

    def get_config(self):
        """The arguments of `__init__`."""
        return {**super().get_config(), "filters": self.filters}


@keras.saving.register_keras_serializable(package="dselectk_keras.experiments")
class SimilarityModel(keras.Model):
    """A mixture with a penalty on how alike the images are that share an expert.

    A gate's own regularizer sees what the gate sees, which here has been through a
    network. The distances of the paper are between images.
    """

    penalty: Any = None

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The loss, and in training the penalty."""
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if self.penalty is None or not training:
            return loss
        pixels = ops.reshape(x, (-1, int(np.prod(x.shape[1:]))))
        return loss + self.penalty.value((weights_of_experts(self, x), pixels))


def single(shape, num_classes):
    """One expert alone.

    Args:
        shape: Of an image.
        num_classes: How many classes there are.

    Returns:
        A model that is not compiled.
    """
    images = keras.Input(shape)
    hidden = layers.Flatten()(Filters(1)(images))
    for units in EXPERT_UNITS:
        hidden = layers.Dense(units, "relu")(hidden)
    return keras.Model(images, layers.Dense(num_classes, "softmax")(hidden))


def experts(num_experts, num_classes):
    """The experts, behind their filters: each has one of its own.

    Args:
        num_experts: How many.
        num_classes: How many probabilities each gives.

    Returns:
        A bank.
    """
    units = [*EXPERT_UNITS, num_classes]
    activations = ["relu"] * len(EXPERT_UNITS) + ["softmax"]
    return DenseExperts(
        num_experts, units, activations, shared_input=False, name="experts"
    )


def mixture(shape, num_classes, num_experts, gate):
    """A mixture of the experts' probabilities.

    Args:
        shape: Of an image.
        num_classes: How many classes there are.
        num_experts: How many experts there are.
        gate: A gate; it looks at what a network of its own makes of the image.

    Returns:
        A model that is not compiled.
    """
    images = keras.Input(shape)
    network = keras.Sequential(
        [
            keras.Input(shape),
            Filters(1),
            layers.Flatten(),
            *(layers.Dense(units, "relu") for units in GATE_UNITS),
        ]
    )
    moe = MoE(
        experts(num_experts, num_classes),
        gate,
        per_example=True,
        routing=network,
        name="moe",
    )
    filtered = Filters(num_experts, name="filters")(images)
    return SimilarityModel(images, moe((filtered, images)))


def gate_of(kind, importance=0.0):
    """A gate of the paper.

    Args:
        kind: `"original"` or `"attentive"`.
        importance: Weight of the importance term.

    Returns:
        A gate that is not built.
    """
    penalty = ImportanceRegularizer(importance, squared=True) if importance else None
    if kind == "attentive":
        return AttentiveGate(GATE_UNITS[-1], weights_regularizer=penalty)
    return SoftmaxGate("glorot_uniform", use_bias=True, weights_regularizer=penalty)


def similarity(beta_d):
    """The penalty L_s.

    Args:
        beta_d: Weight of the pairs at different experts.

    Returns:
        A regularizer.
    """
    return SampleSimilarityRegularizer(BETA_S, beta_d)


def weights_of_experts(model, images):
    """The weights over the experts for images.

    Args:
        model: A model from `mixture`.
        images: A tensor `(batch, height, width, 1)`.

    Returns:
        A tensor `(batch, n)`.
    """
    filtered = model.get_layer("filters")(images)
    return model.get_layer("moe").expert_weights((filtered, images))


def compiled(model, learning_rate):
    """Compile a classifier, and return it.

    Args:
        model: A model that gives probabilities.
        learning_rate: Of Adam.

    Returns:
        The same model.
    """
    optimizer = keras.optimizers.Adam(learning_rate)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
