"""Which experts a gate has chosen."""

import numpy as np
from keras import ops


def chosen(weights, tolerance):
    """Mask of the experts whose weight exceeds the tolerance."""
    weights = np.asarray(weights)
    if weights.ndim == 0 or weights.shape[-1] == 0:
        raise ValueError(
            "`weights` must have the experts as its last axis, at least one. "
            f"Received shape: {weights.shape}. "
            "Pass what `gate.expert_weights()` gives."
        )
    if np.isnan(weights).any():
        raise ValueError(
            "`weights` must be numbers. Received NaN among them. "
            "Look at the training run they come from: it has diverged."
        )
    check_tolerance(tolerance)
    return weights > tolerance


def chosen_mask(weights, tolerance):
    """Ones for the experts whose weight exceeds the tolerance, inside a program.

    Args:
        weights: Float32 tensor with the experts as its last axis.
        tolerance: The largest weight that still counts as none.

    Returns:
        A float32 tensor of the shape of `weights`; NaN where they are.
    """
    mask = ops.cast(weights > tolerance, "float32")
    return ops.where(ops.isnan(weights), weights, mask)


def check_tolerance(tolerance):
    """Refuse a tolerance below zero.

    Args:
        tolerance: The largest number that still counts as none.
    """
    if not tolerance >= 0:
        raise ValueError(
            "`tolerance` must be non-negative. Received: "
            f"tolerance={tolerance!r}. Pass 0.0 to count every weight above zero."
        )
