"""Which experts a gate has chosen."""

import numpy as np


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
    if not tolerance >= 0:
        raise ValueError(
            "`tolerance` must be non-negative. Received: "
            f"tolerance={tolerance!r}. Pass 0.0 to count every weight above zero."
        )
    return weights > tolerance
