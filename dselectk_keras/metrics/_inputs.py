"""Checks and casts of the inputs of metrics."""

import math

from keras import ops


def gate_tensor(name, value, layout, *, lowest, highest=math.inf, num_experts=None):
    """Check and cast a tensor whose last axis is the experts.

    Args:
        name: The argument's name, for the error.
        value: Its value.
        layout: The allowed shapes, for the error.
        lowest: The smallest number of axes.
        highest: The largest number of axes.
        num_experts: The length of the last axis, or `None` for any.

    Returns:
        A float32 tensor.
    """
    value = ops.cast(value, "float32")
    shape = tuple(value.shape)
    fits = lowest <= len(shape) <= highest
    if not fits or (num_experts and shape[-1] not in {None, num_experts}):
        experts = f" with n={num_experts} experts" if num_experts else ""
        raise ValueError(
            f"`{name}` must have the shape {layout}{experts}. Received shape: "
            f"{shape}. The last axis must be the experts."
        )
    return value


def example_vector(name, value, like, dtype="float32"):
    """Check and cast a tensor with one number per example.

    Args:
        name: The argument's name, for the error.
        value: Array `(batch,)` or `(batch, 1)`.
        like: Tensor with the examples as its first axis.
        dtype: The dtype of the result.

    Returns:
        A tensor `(batch,)`.
    """
    value = ops.cast(value, dtype)
    shape, batch = tuple(value.shape), like.shape[0]
    if shape[1:] not in {(), (1,)} or not shape or _differ(shape[0], batch):
        raise ValueError(
            f"`{name}` must have the shape (batch,) or (batch, 1), with batch="
            f"{batch} as in the gate's result. Received shape: {shape}. "
            "Pass one number per example."
        )
    return ops.reshape(value, (-1,))


def example_weights(sample_weight, like):
    """The given sample weights, or ones.

    Args:
        sample_weight: Array `(batch,)` or `(batch, 1)`, or `None`.
        like: Tensor with the examples as its first axis.

    Returns:
        A float32 tensor `(batch,)`.
    """
    if sample_weight is None:
        return ops.ones(ops.shape(like)[:1], "float32")
    return example_vector("sample_weight", sample_weight, like)


def _differ(size, other):
    return size is not None and other is not None and size != other
