"""Small layers between the experts and the named outputs of tasks."""

from collections.abc import Sequence

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="dselectk_keras")
class RepeatTasks(keras.Layer):
    """Give every task the same features: `(batch, 1, ...)` to `(batch, tasks, ...)`.

    Args:
        num_tasks: The number of tasks.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(self, num_tasks: int, **kwargs):
        super().__init__(**kwargs)
        self.num_tasks = num_tasks

    def call(self, inputs):
        """Repeat the only entry of axis 1."""
        return ops.repeat(inputs, self.num_tasks, axis=1)

    def get_config(self) -> dict:
        """The arguments of `__init__`."""
        return {**super().get_config(), "num_tasks": self.num_tasks}


@keras.saving.register_keras_serializable(package="dselectk_keras")
class TakeTasks(keras.Layer):
    """Some of the tasks: `(batch, tasks, ...)` to `(batch, len(indices), ...)`.

    Args:
        indices: Which tasks, by their places.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(self, indices: Sequence[int], **kwargs):
        super().__init__(**kwargs)
        self.indices = list(indices)

    def call(self, inputs):
        """Take the tasks."""
        if self.indices == list(range(inputs.shape[1])):
            return inputs
        return ops.take(inputs, self.indices, axis=1)

    def get_config(self) -> dict:
        """The arguments of `__init__`."""
        return {**super().get_config(), "indices": self.indices}


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Predict(keras.Layer):
    """The tasks' outputs from what their towers give, in float32.

    Args:
        activation: The activation of the outputs.
        reduce: Whether to sum the features of a task into one output first.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(self, activation=None, reduce: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)
        self.reduce = reduce

    def call(self, inputs):
        """Map `(batch, tasks, features)` to `(batch, tasks, outputs)`."""
        x = ops.cast(inputs, "float32")
        if self.reduce:
            x = ops.sum(x, axis=-1, keepdims=True)
        return self.activation(x)

    def get_config(self) -> dict:
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "activation": keras.activations.serialize(self.activation),
            "reduce": self.reduce,
        }


@keras.saving.register_keras_serializable(package="dselectk_keras")
class NameTasks(keras.Layer):
    """One named output a task: `(batch, tasks, ...)` to a dict of `(batch, ...)`.

    Args:
        names: Names of the tasks on axis 1 of the inputs.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(self, names: Sequence[str], **kwargs):
        super().__init__(**kwargs)
        self.names = list(names)

    def call(self, inputs):
        """Take the tasks apart."""
        outputs = ops.unstack(inputs, len(self.names), axis=1)
        return dict(zip(self.names, outputs, strict=True))

    def get_config(self) -> dict:
        """The arguments of `__init__`."""
        return {**super().get_config(), "names": self.names}
