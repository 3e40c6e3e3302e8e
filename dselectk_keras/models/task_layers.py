"""Small layers between the experts and the named outputs of tasks.

Their arguments are plain values, of which Keras itself makes their config.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.utils import Activation, Tensor


@keras.saving.register_keras_serializable(package="dselectk_keras")
class TakeTasks(keras.Layer):
    """Select tasks: `(batch, tasks, ...)` to `(batch, len(indices), ...)`.

    Args:
        indices: The indices of the tasks on axis 1.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(self, indices: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        self.indices = list(indices)

    def call(self, inputs: Tensor):
        """Select the tasks."""
        return ops.take(inputs, self.indices, axis=1)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Predict(keras.Layer):
    """Compute predictions from the outputs of the towers, in float32.

    Args:
        activation: The activation of the predictions.
        reduce: Whether to first sum the features of each task into one output.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(
        self, activation: Activation = None, reduce: bool = False, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)
        self.reduce = reduce

    def call(self, inputs: Tensor):
        """Map `(batch, tasks, features)` to `(batch, tasks, outputs)`."""
        x = ops.cast(inputs, "float32")
        if self.reduce:
            x = ops.sum(x, axis=-1, keepdims=True)
        return self.activation(x)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class NameTasks(keras.Layer):
    """Split predictions by task: `(batch, tasks, ...)` to a dict of `(batch, ...)`.

    Args:
        names: The names of the tasks on axis 1.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(self, names: Sequence[str], **kwargs: Any):
        super().__init__(**kwargs)
        self.names = list(names)

    def call(self, inputs: Tensor):
        """Split the predictions."""
        outputs = ops.unstack(inputs, len(self.names), axis=1)
        return dict(zip(self.names, outputs, strict=True))
