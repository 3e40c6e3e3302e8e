"""What a metric is updated with, checked and in float32."""

import math

from keras import ops


def gate_tensor(name, value, layout, *, lowest, highest=math.inf, num_experts=None):
    """A tensor with the experts as its last axis, in float32.

    Args:
        name: The argument's name, for the error.
        value: Its value.
        layout: The shapes it may have, in words.
        lowest: The smallest number of axes it may have.
        highest: The largest.
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
            f"{shape}. The experts are the last axis of what a gate gives."
        )
    return value


def per_example(name, value, like, dtype="float32"):
    """A tensor `(batch,)`, from one number for each example.

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
            f"{batch} as in the first axis of what the gate gave. Received shape: "
            f"{shape}. Give one number for each example."
        )
    return ops.reshape(value, (-1,))


def example_weights(sample_weight, like):
    """The weight of each example: what was given, or ones.

    Args:
        sample_weight: Array `(batch,)` or `(batch, 1)`, or `None`.
        like: Tensor with the examples as its first axis.

    Returns:
        A float32 tensor `(batch,)`.
    """
    if sample_weight is None:
        return ops.ones(ops.shape(like)[:1], "float32")
    return per_example("sample_weight", sample_weight, like)


def _differ(size, other):
    return size is not None and other is not None and size != other
