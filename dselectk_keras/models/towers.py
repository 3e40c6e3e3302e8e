"""The towers of the tasks, from their mixtures to the outputs of a model."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.experts import DenseExperts
from dselectk_keras.models.task import Task, group_tasks
from dselectk_keras.ops import unstack
from dselectk_keras.utils import Activation, Tensor


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Take(keras.Operation):
    """Takes slices of a tensor along an axis, by their indices, a list of integers.

    With `floatx` "bfloat16", `keras.ops.take` on JAX takes only indices in a tensor.
    """

    def __init__(self, indices: Sequence[int], axis: int = 1, name: str | None = None):
        super().__init__(name=name)
        self.indices, self.axis = indices, axis

    def call(self, x):
        first, last, steps = self.indices[0], self.indices[-1], np.diff(self.indices)
        if (steps > 0).all() and (steps == steps[:1]).all():
            # Without indices, which torch would copy to the device.
            rows = slice(first, last + 1, int(steps[0]) if len(steps) else 1)
            return x[(*[slice(None)] * self.axis, rows)]
        indices = ops.convert_to_tensor(self.indices, "int")
        return ops.take(x, indices, axis=self.axis)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Predict(keras.Layer):
    """Compute the predictions of tasks from the outputs of their towers, in float32.

    With `reduce`, the features of each task are summed first. With `names`, those of
    the tasks on axis 1, the predictions are a dict.
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
        x = ops.sum(inputs, axis=-1, keepdims=True) if self.reduce else inputs
        x = self.activation(x)
        if self.names is None:
            return x
        return dict(zip(self.names, unstack(x, axis=1), strict=True))


def add_towers(
    mixtures: Tensor, tasks: Sequence[Task], stacked: bool, wrap: Any = None
) -> Any:
    """Build the towers, one bank per group of tasks; return the outputs.

    The mixtures are `(batch, tasks, ...)`. The function `wrap` wraps a bank of towers.
    """
    mixtures = flatten(mixtures)
    groups, predictions = group_tasks(tasks), []
    for label, indices in groups.items():
        task = tasks[indices[0]]
        x = Take(indices)(mixtures) if len(groups) > 1 else mixtures
        if task.tower != "sum":
            hidden: Any = task.tower
            towers = DenseExperts(
                len(indices),
                [*hidden, task.num_outputs],
                ["relu"] * len(hidden) + [None],
                shared_input=False,
                name=f"towers_{label}",
            )
            x = (wrap(towers) if wrap else towers)(x)
        names = None if stacked else [tasks[index].name for index in indices]
        form = task.rules.activation, task.tower == "sum", names
        predictions.append(Predict(*form, name=f"predict_{label}")(x))
    if stacked:
        return _stack(predictions, np.concatenate([*groups.values()]))
    by_name = {name: x for outputs in predictions for name, x in outputs.items()}
    return {task.name: by_name[task.name] for task in tasks}


def flatten(mixtures: Tensor) -> Tensor:
    """Flatten the axes of mixtures after that of the tasks."""
    if len(mixtures.shape) == 3:
        return mixtures
    size = (mixtures.shape[1], -1)
    return keras.layers.Reshape(size, name="flatten_mixtures")(mixtures)


def _stack(predictions, order):
    """Join the predictions of all groups, and sort them by the indices of the tasks."""
    x = ops.concatenate(predictions, axis=1) if len(predictions) > 1 else predictions[0]
    if (np.diff(order) < 0).any():
        x = Take(np.argsort(order).tolist())(x)
    return ops.squeeze(x, -1) if x.shape[-1] == 1 else x
