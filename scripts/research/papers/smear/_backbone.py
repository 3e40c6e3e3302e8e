"""A frozen residual network of 18 layers, cut where adapters go in."""

import math
from typing import Any

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.utils import optional_import

STACKS = 4
BLOCKS = 2  # In each stack: with the stem and the classifier, 18 layers.


def resnet18(image_shape, width):
    """A network of the shape of ResNet18, for small images, with random weights.

    The stem has one convolution of stride 1 and no pooling, as is usual for images of
    about 32 x 32 pixels. The sums have the names that KerasHub gives them.
    """
    images = keras.Input(image_shape)
    x = keras.layers.ReLU()(_convolved(images, width, 3, 1))
    for stack in range(STACKS):
        for block in range(BLOCKS):
            stride = 2 if stack and not block else 1
            x = _residual(x, width * 2**stack, stride, _sum(stack, block))
    return keras.Model(images, x)


def pretrain(model, images, labels, epochs):
    """Train a backbone to classify images."""
    x = keras.layers.GlobalAveragePooling2D()(model.outputs[0])
    x = keras.layers.Dense(int(labels.max()) + 1, "softmax")(x)
    classifier = keras.Model(model.inputs, x)
    optimizer = keras.optimizers.Adam(3e-3)
    classifier.compile(optimizer, "sparse_categorical_crossentropy")
    # Not by `replicate`: on a processor, JAX takes 6 to 50 times as long for the
    # gradient of a convolution's kernel where an epoch is one program.
    data = Batches((images, labels), batch_size=64, seed=0)
    classifier.fit(data, epochs=epochs, shuffle=False, verbose=0)


def from_keras_hub(preset, image_shape):
    """A residual network of KerasHub, such as ResNet18 trained on ImageNet."""
    keras_hub = optional_import(
        "keras_hub", extra="pretrained", purpose="A pretrained backbone"
    )
    backbone = keras_hub.models.Backbone
    return backbone.from_preset(preset, image_shape=tuple(image_shape))


def as_photographs(images):
    """Images from 0 to 1 as networks trained on ImageNet see them."""
    means = np.array([0.485, 0.456, 0.406], "float32")
    deviations = np.array([0.229, 0.224, 0.225], "float32")
    return ((images - means) / deviations).astype("float32")


def cut(model, num_adapters):
    """Cut a residual network into features and blocks, before which adapters go in.

    An adapter belongs between the sum that ends a residual block and the activation
    after it, as in the release of SMEAR.
    """
    sums = [_sum(stack, block) for stack in range(STACKS) for block in range(BLOCKS)]
    if not 0 < num_adapters <= len(sums):
        raise ValueError(
            f"There may be 1 to {len(sums)} adapters. "
            f"Received: num_adapters={num_adapters}."
        )
    points = [model.get_layer(name).output for name in sums[-num_adapters:]]
    ends = [*points[1:], model.outputs[0]]
    blocks = [
        keras.Model(a, b, name=f"frozen_{i}")
        for i, (a, b) in enumerate(zip(points, ends, strict=True))
    ]
    return keras.Model(model.inputs[0], points[0], name="features"), blocks


def copies(blocks):
    """New models with the weights of these, which nothing trains."""
    found = []
    for block in blocks:
        copy = keras.models.clone_model(block)
        copy.set_weights(block.get_weights())
        copy.trainable = False
        found.append(copy)
    return found


def convolution_flops(models):
    """Operations of the convolutions for one image, two for each product and sum."""
    layers = (layer for model in models for layer in model.layers)
    return sum(
        2 * math.prod(layer.output.shape[1:3]) * math.prod(layer.kernel.shape)
        for layer in layers
        if isinstance(layer, keras.layers.Conv2D)
    )


def _sum(stack, block):
    """The name of the sum that ends a residual block."""
    return f"stack{stack}_block{block}_add"


def _residual(x, filters, stride, name):
    shortcut: Any = x
    if stride > 1 or x.shape[-1] != filters:
        shortcut = _convolved(x, filters, 1, stride)
    x = keras.layers.ReLU()(_convolved(x, filters, 3, stride))
    x = _convolved(x, filters, 3, 1)
    return keras.layers.ReLU()(keras.layers.Add(name=name)([shortcut, x]))


def _convolved(x, filters, size, stride):
    x = keras.layers.Conv2D(filters, size, stride, "same", use_bias=False)(x)
    return keras.layers.BatchNormalization(momentum=0.9)(x)
