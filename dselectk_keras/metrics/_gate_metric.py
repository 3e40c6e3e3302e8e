"""Base classes of the streaming metrics."""

import abc
from typing import Any

import keras
from keras import ops

from dselectk_keras.metrics._inputs import example_weights
from dselectk_keras.utils import Tensor


class GateMetric(keras.metrics.Metric, abc.ABC):
    """A metric with float32 state under any dtype policy.

    Args:
        name: The metric's name in logs.
    """

    def __init__(self, name):
        super().__init__(dtype="float32", name=name)

    def add_sum(self, name, shape=()):
        """Add a variable that starts at zero.

        Args:
            name: Its name.
            shape: Its shape.

        Returns:
            The variable.
        """
        return self.add_variable(shape, "zeros", dtype="float32", name=name)

    def get_config(self) -> dict[str, Any]:
        """The arguments of `__init__`."""
        return {"name": self.name}


class MeanMetric(GateMetric):
    """The mean over all examples of values that a subclass computes.

    Args:
        name: The metric's name in logs.
        shape: The shape of the mean.
    """

    def __init__(self, name, shape=()):
        super().__init__(name)
        self.total = self.add_sum("total", shape)
        self.count = self.add_sum("count")

    @abc.abstractmethod
    def update_state(self, *args, **kwargs):
        """Compute the values of a batch, and pass them to `add_batch`."""

    def add_batch(self, values, sample_weight):
        """Add the values of a batch.

        Args:
            values: Float32 tensor `(batch, ..., *shape)`. The mean is taken over the
                axes in between.
            sample_weight: Array `(batch,)` or `(batch, 1)`, or `None`.
        """
        trailing = len(self.total.shape)
        if len(values.shape) == trailing:
            values = ops.expand_dims(values, 0)
        between = tuple(range(1, len(values.shape) - trailing))
        if between:
            values = ops.mean(values, axis=between)
        weights = example_weights(sample_weight, values)
        self.count.assign(self.count + ops.sum(weights))
        weights = ops.reshape(weights, (-1, *[1] * trailing))
        self.total.assign(self.total + ops.sum(weights * values, axis=0))

    def result(self) -> Tensor:
        """The mean so far; 0 before the first example."""
        return ops.divide_no_nan(self.total, self.count)
