"""The networks of Appendix B for each data set: experts, gates, mixtures of them."""

import itertools
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

import dselectk_keras as dk


class Sizes(NamedTuple):
    """Sizes of the networks for images of one channel."""

    expert_units: tuple[int, int] = (5, 32)
    gate_filters: int = 1
    gate_size: int = 3
    gate_units: tuple[int, int] = (128, 32)


class Data(NamedTuple):
    """Facts about a data set that are needed before it is read."""

    title: str
    num_classes: int
    num_experts: int  # Of the paper's mixture.
    sizes: Sizes | None  # `None`: photographs.
    shape: tuple[int, int, int] = (28, 28, 1)  # Of an image.


DATA = {
    "mnist": Data("MNIST", 10, 5, Sizes()),  # Appendix B.1.
    "fmnist_mnist": Data("FMNIST + MNIST", 12, 6, Sizes(gate_size=5)),  # B.2.
    "cifar100": Data("CIFAR-100", 100, 20, None, (32, 32, 3)),  # B.3.
    "fashion_mnist": Data("FMNIST", 10, 5, Sizes((64, 32), 8, 3, (512, 32))),  # B.4.
    # Ours: experts of B.4, and a gate of B.1.
    "multi_mnist": Data("Multi-MNIST", 100, 20, Sizes((64, 32)), (18, 18, 1)),
}
# Appendix B.3: convolutions, and hidden layers, for photographs.
PHOTO_EXPERT_FILTERS = (16, 32, 64, 128)
PHOTO_GATE_FILTERS = (64, 128, 256, 512)
PHOTO_UNITS = (1024, 256)
POOLED = tuple(itertools.product((0, 1), repeat=2))  # Places that one maximum is over.


def _places(size):
    """A mask of the pixel of a patch for each weight of a filter and pooled place."""
    side = size + 1
    places = np.zeros((side**2, len(POOLED), size**2), "float32")
    for pool, (a, b) in enumerate(POOLED):
        for weight, (i, j) in enumerate(itertools.product(range(size), repeat=2)):
            places[side * (a + i) + b + j, pool, weight] = 1
    return places


@keras.saving.register_keras_serializable(package="dselectk_keras.experiments")
class Filters(keras.layers.Layer):
    """Filters, ReLU, and the maximum over 2 x 2, as one matrix product.

    It computes what `Conv2D` and `MaxPooling2D` do, several times faster on a
    processor where there are few filters of one channel. Each filter starts as one
    alone would. The outputs are `(batch, filters, features)`.
    """

    def __init__(self, filters, size=3, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.size = size

    def build(self, input_shape):
        self.sides = tuple((side - self.size + 1) // 2 for side in input_shape[1:3])
        self.kernel = self.add_weight(
            shape=(self.size**2, self.filters),
            initializer=keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform"),
            name="kernel",
        )
        self.bias = self.add_weight((self.filters, 1), "zeros", name="bias")

    def call(self, inputs):
        height, width = self.sides
        side = self.size + 1
        shifted = [
            inputs[:, p : p + 2 * height - 1 : 2, q : q + 2 * width - 1 : 2, 0]
            for p, q in itertools.product(range(side), repeat=2)
        ]
        pixels = ops.reshape(ops.stack(shifted), (side**2, -1))
        kernel = ops.einsum("spk,kf->pfs", _places(self.size), self.kernel)
        outputs = ops.matmul(ops.reshape(kernel, (-1, side**2)), pixels)
        outputs = ops.max(ops.reshape(outputs, (4, self.filters, -1)), axis=0)
        outputs = ops.relu(outputs + self.bias)
        outputs = ops.reshape(outputs, (self.filters, -1, height * width))
        return ops.transpose(outputs, (1, 0, 2))

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "size": self.size}


def convolutions(filters):
    """Layers of convolutions of 3 x 3, of which every second one is normalized."""
    found = []
    for number, count in enumerate(filters):
        found.append(layers.Conv2D(count, 3, padding="same"))
        found += [layers.BatchNormalization()] * (number % 2)
        found += [layers.ReLU(), layers.MaxPooling2D(2)]
    return [*found, layers.Flatten()]


def _relu(units):
    return [layers.Dense(count, "relu") for count in units]


def single(about):
    """One expert alone, for `Data`."""
    if about.sizes:
        first = [Filters(1), layers.Flatten(), *_relu(about.sizes.expert_units)]
    else:
        first = [*convolutions(PHOTO_EXPERT_FILTERS), *_relu(PHOTO_UNITS)]
    last = layers.Dense(about.num_classes, "softmax")
    return keras.Sequential([keras.Input(about.shape), *first, last])


def experts(about, num_experts):
    """The experts behind their filters, of which each has one of its own."""
    units = [*about.sizes.expert_units, about.num_classes]
    activations = ["relu", "relu", "softmax"]
    return dk.DenseExperts(
        num_experts, units, activations, shared_input=False, name="experts"
    )


def routing_network(about, activation):
    """The layers of a gate below its last one, and their width."""
    if sizes := about.sizes:
        first = [Filters(sizes.gate_filters, sizes.gate_size), layers.Flatten()]
        units = sizes.gate_units
    else:
        first, units = convolutions(PHOTO_GATE_FILTERS), PHOTO_UNITS
    last = layers.Dense(units[-1], activation)
    network = [keras.Input(about.shape), *first, *_relu(units[:-1]), last]
    return keras.Sequential(network), units[-1]


def mixture(about, num_experts, kind="original", penalty=None):
    """A mixture of the experts' probabilities, of a kind of gate; not compiled."""
    attentive = kind == "attentive"
    network, width = routing_network(about, None if attentive else "relu")
    gate = dk.baselines.AttentiveGate(width, weights_regularizer=penalty)
    images: Any = keras.Input(about.shape)
    if about.sizes:
        filtered = Filters(num_experts, name="filters")(images)
        bank, inputs = experts(about, num_experts), (filtered, images)
    else:
        bank, inputs = dk.Experts(single(about), num_experts), images
    moe = (dk.baselines.AttentiveMoE if attentive else dk.MoE)(
        bank,
        gate if attentive else original_gate(penalty),
        per_example=True,
        routing_network=network,
        name="moe",
    )
    return keras.Model(images, moe(inputs))


def original_gate(penalty=None):
    """The last layer of the original gate, with its softmax."""
    return dk.SoftmaxGate("glorot_uniform", use_bias=True, weights_regularizer=penalty)


def weights_of_experts(model, images):
    """The weights over the experts for images."""
    names = [layer.name for layer in model.layers]
    if "filters" in names:
        images = model.get_layer("filters")(images), images
    return model.get_layer("moe").expert_weights(images)
