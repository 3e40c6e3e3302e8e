"""What metrics share: their state, and checks of what they are given."""

import abc
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.utils import (
    MAX_EXPERTS,
    Configured,
    Tensor,
    check_count,
    check_number,
    convert,
)

_TINY = float(np.finfo("float32").tiny)


class GateMetric(Configured, keras.metrics.Metric, abc.ABC):
    """A metric with a sum of this shape; float32 under any dtype policy."""

    def __init__(self, name, shape=()):
        super().__init__(dtype="float32", name=name)
        self.total = self.add_variable(shape, "zeros", dtype="float32", name="total")


class MeanMetric(GateMetric):
    """The mean over all examples of values that a subclass computes."""

    num_experts: int | None = None

    def __init__(self, name, shape=()):
        super().__init__(name, shape)
        self.count = self.add_variable((), "zeros", dtype="float32", name="count")

    @abc.abstractmethod
    def values(self, weights: Tensor) -> Any:
        """Compute the values `(batch, ..., *shape)` of the weights of a batch."""

    def update_state(self, weights: Tensor, sample_weight: Tensor = None) -> None:
        """Add the values of a batch, with the mean over the axes between.

        With sample weights `(batch, length)` each token counts as an example.
        """
        weights = gate_tensor(weights, (2, 3), self.num_experts)
        values, trailing = self.values(weights), len(self.total.shape)
        tokens = tuple(getattr(sample_weight, "shape", ()))
        if len(tokens) > 1 and tokens == tuple(values.shape[: len(tokens)]):
            values = ops.reshape(values, (-1, *values.shape[len(tokens) :]))
            sample_weight = ops.reshape(sample_weight, (-1,))
        between = tuple(range(1, len(values.shape) - trailing))
        values = ops.mean(values, axis=between) if between else values
        amounts = example_weights(sample_weight, values)
        self.count.assign(self.count + ops.sum(amounts))
        amounts = ops.reshape(amounts, (-1, *[1] * trailing))
        # Padding may be NaN, and 0 * NaN is NaN.
        values = ops.where(amounts == 0, 0.0, amounts * values)
        self.total.assign(self.total + ops.sum(values, axis=0))

    def result(self) -> Tensor:
        """The mean so far; 0 before the first example."""
        return ops.divide_no_nan(self.total, self.count)


class SelectionMetric(GateMetric):
    """Counts how often examples, or tokens, of each class choose each expert.

    An example chooses the expert with its largest weight, the first one if tied.
    """

    def __init__(self, num_experts, num_classes, name):
        check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
        check_count("num_classes", num_classes, maximum=MAX_EXPERTS)
        super().__init__(name, (num_classes, num_experts))
        self.num_experts = num_experts
        self.num_classes = num_classes

    def update_state(
        self, labels: Tensor, weights: Tensor, sample_weight: Tensor = None
    ) -> None:
        """Count the choices of a batch."""
        n = self.num_experts
        weights, labels = as_float("weights", weights), as_float("labels", labels)
        if len(weights.shape) == 3 and len(labels.shape) == 2:
            weights, labels = ops.reshape(weights, (-1, n)), ops.reshape(labels, (-1,))
            if sample_weight is not None:
                sample_weight = ops.reshape(sample_weight, (-1,))
        weights = gate_tensor(weights, (2,), n)
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
        self.total.assign(self.total + ops.reshape(counts, self.total.shape))


def as_float(name, value):
    """A float32 tensor, or an error with the name."""
    return convert(name, value, lambda given: ops.cast(given, "float32"))


def gate_tensor(weights, axes, num_experts=None):
    """Weights in float32, with one of the numbers of axes; the last is the experts."""
    weights = as_float("weights", weights)
    shape = tuple(weights.shape)
    if len(shape) not in axes or (num_experts and shape[-1] not in {None, num_experts}):
        layouts = "(batch, n)", "(batch, g, n)"
        experts = f" with n={num_experts} experts" if num_experts else ""
        raise ValueError(
            f"`weights` must have the shape {' or '.join(layouts[: len(axes)])}"
            f"{experts}. Received shape: {shape}. The last axis must be the experts."
        )
    return weights


def example_vector(name, value, like):
    """A float32 tensor `(batch,)` with one number per example of another tensor."""
    value = as_float(name, value)
    shape, batch = tuple(value.shape), like.shape[0]
    if shape[1:] not in {(), (1,)} or not shape or len({*shape[:1], batch, None}) > 2:
        raise ValueError(
            f"`{name}` must have the shape (batch,) or (batch, 1), with batch="
            f"{batch} as in the gate's result. Received shape: {shape}. "
            "Pass one number per example."
        )
    return ops.reshape(value, (-1,))


def example_weights(sample_weight, like):
    """The given sample weights, or ones, `(batch,)`."""
    if sample_weight is None:
        return ops.ones(ops.shape(like)[:1], "float32")
    return example_vector("sample_weight", sample_weight, like)


def used_experts(weights, tolerance):
    """Boolean array of the experts whose weight exceeds the tolerance."""
    weights = np.asarray(weights)
    if weights.ndim == 0 or weights.shape[-1] == 0:
        raise ValueError(
            "`weights` must have the experts as its last axis, at least one. "
            f"Received shape: {weights.shape}. "
            "Pass the result of `gate.expert_weights()`."
        )
    if np.isnan(weights).any():
        raise ValueError(
            "`weights` must be numbers. Received NaN among them. "
            "The training run has diverged."
        )
    check_number("tolerance", tolerance, minimum=0)
    return weights > tolerance


def exact_entropy(probabilities, base):
    """Entropy over the last axis to any base, with 0 log 0 = 0 exactly."""
    p = probabilities
    # Not a negation, which would give -0.0 for 0.
    return 0.0 - ops.sum(p * safe_log(p), axis=-1) / math.log(base)


def safe_log(x):
    """The natural logarithm, but 0 where `x` is 0."""
    # Some devices flush numbers below `_TINY` to zero.
    return ops.log(ops.where(x < _TINY, 1.0, x))
