"""Checks and casts of the inputs of metrics, and what several of them compute."""

import math

import numpy as np
from keras import ops

from dselectk_keras.utils import check_number

_TINY = float(np.finfo("float32").tiny)


def gate_tensor(name, value, layout, lowest, highest=math.inf, num_experts=None):
    """A float32 tensor of a number of axes, the last of which is the experts."""
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


def example_vector(name, value, like):
    """A float32 tensor `(batch,)` with one number per example of another tensor."""
    value = ops.cast(value, "float32")
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


def used_mask(weights, tolerance):
    """Tensor of ones where a weight exceeds the tolerance; NaN where it is NaN."""
    mask = ops.cast(weights > tolerance, "float32")
    return ops.where(ops.isnan(weights), weights, mask)


def exact_entropy(probabilities, base):
    """Entropy over the last axis to any base, with 0 log 0 = 0 exactly."""
    p = probabilities
    # Not a negation, which would give -0.0 for 0.
    return 0.0 - ops.sum(p * safe_log(p), axis=-1) / math.log(base)


def safe_log(x):
    """The natural logarithm, but 0 where `x` is 0."""
    # Some devices flush numbers below `_TINY` to zero.
    return ops.log(ops.where(x < _TINY, 1.0, x))
