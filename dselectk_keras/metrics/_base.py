"""Base classes of the streaming metrics."""

import abc
from typing import Any

import keras
from keras import ops

from dselectk_keras.metrics._inputs import example_vector, example_weights, gate_tensor
from dselectk_keras.registry import Registry
from dselectk_keras.utils import MAX_EXPERTS, Tensor, check_count, init_arguments

METRICS = Registry("metric")


class GateMetric(keras.metrics.Metric, abc.ABC):
    """A metric with float32 state under any dtype policy."""

    def __init__(self, name):
        super().__init__(dtype="float32", name=name)

    def add_sum(self, name, shape=()):
        """Add a variable that starts at zero."""
        return self.add_variable(shape, "zeros", dtype="float32", name=name)

    def get_config(self) -> dict[str, Any]:
        """The arguments of `__init__`."""
        return init_arguments(self)


class MeanMetric(GateMetric):
    """The mean over all examples of values that a subclass computes."""

    def __init__(self, name, shape=()):
        super().__init__(name)
        self.total = self.add_sum("total", shape)
        self.count = self.add_sum("count")

    @abc.abstractmethod
    def update_state(self, *args, **kwargs):
        """Compute the values of a batch, and pass them to `add_batch`."""

    def add_batch(self, values, sample_weight):
        """Add values `(batch, ..., *shape)`, with the mean over the axes between.

        With sample weights `(batch, length)` each token counts as an example.
        """
        tokens = tuple(getattr(sample_weight, "shape", ()))
        if len(tokens) > 1 and tokens == tuple(values.shape[: len(tokens)]):
            values = ops.reshape(values, (-1, *values.shape[len(tokens) :]))
            sample_weight = ops.reshape(sample_weight, (-1,))
        trailing = len(self.total.shape)
        if len(values.shape) == trailing:
            values = ops.expand_dims(values, 0)
        between = tuple(range(1, len(values.shape) - trailing))
        if between:
            values = ops.mean(values, axis=between)
        weights = example_weights(sample_weight, values)
        self.count.assign(self.count + ops.sum(weights))
        weights = ops.reshape(weights, (-1, *[1] * trailing))
        # Padding may be NaN, and 0 * NaN is NaN.
        values = ops.where(weights == 0, 0.0, weights * values)
        self.total.assign(self.total + ops.sum(values, axis=0))

    def result(self) -> Tensor:
        """The mean so far; 0 before the first example."""
        return ops.divide_no_nan(self.total, self.count)


class SelectionMetric(GateMetric):
    """Counts how often examples, or tokens, of each class choose each expert.

    An example chooses the expert with its largest weight, the first one if tied.
    """

    def __init__(self, num_experts, num_classes, name):
        super().__init__(name)
        check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
        check_count("num_classes", num_classes, maximum=MAX_EXPERTS)
        self.num_experts = num_experts
        self.num_classes = num_classes
        self.counts = self.add_sum("counts", (num_classes, num_experts))

    def update_state(
        self, labels: Tensor, weights: Tensor, sample_weight: Tensor = None
    ) -> None:
        """Count the choices of a batch."""
        n = self.num_experts
        weights, labels = map(ops.convert_to_tensor, (weights, labels))
        if len(weights.shape) == 3 and len(labels.shape) == 2:
            weights, labels = ops.reshape(weights, (-1, n)), ops.reshape(labels, (-1,))
            if sample_weight is not None:
                sample_weight = ops.reshape(sample_weight, (-1,))
        weights = gate_tensor("weights", weights, "(batch, n)", 2, 2, num_experts=n)
        # As floats, since NaN has no integer. The classes are exact.
        labels = example_vector("labels", labels, weights)
        amounts = example_weights(sample_weight, weights)
        known = ops.logical_and(labels >= 0, labels < self.num_classes)
        labels = ops.cast(ops.where(known, labels, 0), "int32")
        # Not a product of one-hot matrices, which would round the sample weights on
        # devices that multiply in lower precision.
        counts = ops.segment_sum(
            ops.where(known, amounts, 0.0),
            labels * n + ops.argmax(weights, axis=-1),
            num_segments=self.num_classes * n,
        )
        self.counts.assign(self.counts + ops.reshape(counts, self.counts.shape))

    @abc.abstractmethod
    def result(self) -> Tensor:
        """The metric, computed from the counts."""
