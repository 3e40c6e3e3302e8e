"""The layer between the towers and the outputs of a model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.ops.unstack import unstack
from dselectk_keras.utils import Activation, Tensor


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Predict(keras.Layer):
    """Compute the predictions of tasks from the outputs of their towers, in float32.

    Args:
        activation: The activation of the predictions.
        reduce: Whether to first sum the features of each task into one output.
        names: The names of the tasks on axis 1, to split the predictions by task.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(
        self,
        activation: Activation = None,
        reduce: bool = False,
        names: Sequence[str] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**{"dtype": "float32", **kwargs})
        self.activation = keras.activations.get(activation)
        self.reduce = reduce
        self.names = names

    def call(self, inputs: Tensor):
        """Map `(batch, tasks, features)` to `(batch, tasks, outputs)`, or to a dict."""
        x = ops.sum(inputs, axis=-1, keepdims=True) if self.reduce else inputs
        x = self.activation(x)
        if self.names is None:
            return x
        return dict(zip(self.names, unstack(x, axis=1), strict=True))
