"""Which experts a gate uses."""

import numpy as np
from keras import ops


def used_experts(weights, tolerance):
    """Boolean mask of the experts whose weight exceeds the tolerance."""
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
    check_tolerance(tolerance)
    return weights > tolerance


def used_mask(weights, tolerance):
    """Mask of the experts whose weight exceeds the tolerance, as a tensor.

    Args:
        weights: Float32 tensor with the experts as its last axis.
        tolerance: The largest weight that counts as not used.

    Returns:
        A float32 tensor of ones and zeros; NaN where `weights` is NaN.
    """
    mask = ops.cast(weights > tolerance, "float32")
    return ops.where(ops.isnan(weights), weights, mask)


def check_tolerance(tolerance):
    """Raise an error for a negative tolerance.

    Args:
        tolerance: The largest weight that counts as not used.
    """
    if not tolerance >= 0:
        raise ValueError(
            "`tolerance` must be non-negative. Received: "
            f"tolerance={tolerance!r}. Pass 0.0 to count every positive weight."
        )
