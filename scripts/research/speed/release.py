"""The code of the original release at the same work.

Nothing of it is in this project; a user names the path of a copy.
"""

import functools
import importlib.util
from typing import Any

import keras

from research.speed.measure import measure
from research.speed.workload import WORKLOADS

# What the code can compute.
POSSIBLE = "W1-static-128", "W1-per-example-128", "W2", "W4-dselect-k"


def measure_release(path, workload, rounds, progress=lambda _: None):
    """Time a workload in the package and in the release's file, in turns."""
    work = WORKLOADS[workload]
    makers = {"release": functools.partial(_release, work, path)}
    for form in ("XLA", "bank", "stacked"):
        if form in work.forms:
            makers[form] = functools.partial(work.model, form)
    return measure(work, makers, rounds, progress)


def _release(workload, path):
    """The layer of the original release, in a model of Keras 2."""
    import tensorflow as tf

    if issubclass(tf.keras.layers.Layer, keras.layers.Layer):
        raise RuntimeError(
            "The original release needs Keras 2: pip install tf_keras, and set "
            f"TF_USE_LEGACY_KERAS=1. Received: Keras {keras.__version__}."
        )
    spec: Any = importlib.util.spec_from_file_location("dselect_k_moe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    layers = tf.keras.layers
    inputs = layers.Input(workload.input_shape, name="features")
    experts = [
        layers.Dense(workload.units, activation="relu")(inputs)
        for _ in range(workload.num_experts)
    ]
    outputs = {}
    for task in workload.new_tasks():
        gate = module.DSelectKGate(workload.num_nonzeros)
        x = gate((experts, inputs) if workload.per_example else experts)
        if task.tower == "sum":
            x = tf.reduce_sum(x, axis=-1, keepdims=True)
        else:
            for width in task.tower:
                x = layers.Dense(width, activation="relu")(x)
            x = layers.Dense(1)(x)
        outputs[task.name] = layers.Activation("linear", name=task.name)(x)

    class Model(tf.keras.Model):
        def fit(self, *args, callbacks=(), **kwargs):
            hooks: Any = [
                tf.keras.callbacks.LambdaCallback(
                    on_batch_begin=callback.on_train_batch_begin,
                    on_epoch_end=callback.on_epoch_end,
                )
                for callback in callbacks
            ]
            return super().fit(*args, callbacks=hooks, **kwargs)

    model = Model(inputs, outputs)
    model.compile("adam", loss=dict.fromkeys(outputs, "mse"))
    return model
