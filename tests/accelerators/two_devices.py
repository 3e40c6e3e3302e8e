"""Train parts with XLA, where variables of int32 are on another device.

    python two_devices.py EVERY FIRST...  trains a model of each EVERY-th part, from
                                          the first on, and one from each other first

TensorFlow has no such variables on a GPU, and XLA refuses those of another device.
Here, a second device of the processor stands for the GPU. A script, since devices have
to be divided before anything uses them.
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from accelerators.parts import data, every_part
from helpers import numpy

from dselectk_keras import DecideGates

HOST, GPU = "CPU:0", "CPU:1"
# Of these, TensorFlow's build for GPUs computes int32 in the host's memory alone.
HOST_ONLY = {
    *("AddV2", "Sub", "Mul", "FloorDiv", "FloorMod", "Minimum", "Maximum", "Neg"),
    *("Sum", "Max", "Min", "Equal", "NotEqual", "Less", "LessEqual", "Greater"),
    *("GreaterEqual", "TensorScatterUpdate", "ScatterNd", "Split", "StridedSlice"),
}


def place_variables():
    """Create variables of int32 on the host, and others on the GPU."""
    add_weight = keras.Layer.add_weight

    def place(layer, *args, **kwargs):
        with tf.device(HOST if kwargs.get("dtype") == "int32" else GPU):
            return add_weight(layer, *args, **kwargs)

    keras.Layer.add_weight = place


def on_the_host(graph):
    """Operations with int32 that have no kernel on a GPU, but for those of shapes."""
    found = set()
    for function in [graph, *graph._functions.values()]:
        for operation in getattr(function, "graph", function).get_operations():
            tensors = *operation.inputs, *operation.outputs
            shapes = [each.shape for each in tensors if each.dtype == tf.int32]
            if operation.type in HOST_ONLY and not all(map(is_of_a_shape, shapes)):
                found.add(f"{operation.type}: {operation.name}")
    return sorted(found)


def is_of_a_shape(shape):
    return shape.rank == 0 or (shape.rank == 1 and shape[0] in range(5))


def train(share):
    """Train, and compare predictions with those without XLA."""
    model, places = every_part(share)
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=True)
    x = data(8)
    # The same batch twice. With a smaller one behind, the size of all is unknown.
    rows = [*range(8), *range(8), 0]
    several = {name: value[rows] for name, value in x.items()}
    y = np.ones((len(rows), model.output.shape[-1]), "float32")
    settings = {"batch_size": 8, "verbose": 0}
    log = model.fit(
        *(several, y),
        epochs=2,
        steps_per_epoch=1,
        shuffle=False,
        callbacks=[DecideGates(0.5)],
        **settings,
    )
    predicted, outputs = model.predict(x, **settings), numpy(model(x))
    differences = np.abs(predicted - outputs).max(axis=0)
    traced = tf.function(model).get_concrete_function(
        {name: tf.TensorSpec((None, *v.shape[1:]), v.dtype) for name, v in x.items()},
        training=True,
    )
    return {
        "losses": log.history["loss"],
        "steps": sorted({int(w) for w in model.weights if w.name == "step"}),
        "differences": {name: differences[at].max() for name, at in places.items()},
        "on the host": on_the_host(traced.graph),
    }


if __name__ == "__main__":
    # Not in the test, whose process has used its devices.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    place_variables()
    keras.utils.set_random_seed(0)
    every, *firsts = map(int, sys.argv[1:])
    with tf.device(GPU):
        found = [train(slice(first, None, every)) for first in firsts]
    sys.stdout.write(json.dumps(found, default=float) + "\n")
