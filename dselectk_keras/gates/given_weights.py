"""From given weights of the experts to the logits of a gate."""

from typing import Any

import numpy as np

from dselectk_keras.utils import shown

# The softmax of its logarithm is exactly 0 in float32.
_ALMOST_ZERO = 1e-60


def check_expert_weights(weights: Any, num_nonzeros: int) -> np.ndarray:
    """Return weights `(..., n)`, of which few are nonzero, or raise an error."""
    weights = np.asarray(weights, "float64")
    used = (weights > 0).sum(axis=-1)
    if (
        not (weights >= 0).all()
        or not np.allclose(weights.sum(axis=-1), 1.0, atol=1e-4)
        or (used > num_nonzeros).any()
    ):
        raise ValueError(
            "`weights` must be non-negative, sum to one along the last axis and "
            f"have at most {num_nonzeros} nonzeros. Received: up to {used.max()} "
            f"nonzeros, {shown(weights.tolist())}. To keep the largest, pass "
            f"ops.keep_largest(weights, {num_nonzeros})."
        )
    return weights


def log_weights(weights: np.ndarray, slack: float) -> np.ndarray:
    """Compute logits whose softmax is the weights, `slack` of it spread evenly."""
    spread = (1.0 - slack) * weights + slack / weights.shape[-1]
    return np.log(np.maximum(spread, _ALMOST_ZERO)).astype("float32")


def one_expert_each(weights: Any, num_nonzeros: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose an expert for each selector, and the logarithm of its share, `(..., k)`.

    This is the construction in the proof of Proposition 1 of DSelect-k. The selectors
    choose the experts in the order of their weights, the largest first. Spare selectors
    choose the last of these experts too, and share its weight evenly.
    """
    weights = check_expert_weights(weights, num_nonzeros)
    order = np.argsort(-weights, axis=-1, kind="stable")
    last = (weights > 0).sum(axis=-1, keepdims=True) - 1
    rank = np.arange(num_nonzeros)
    chosen = np.take_along_axis(order, np.minimum(rank, last), axis=-1)
    shares = np.take_along_axis(weights, chosen, axis=-1)
    shares = shares / np.where(rank >= last, num_nonzeros - last, 1)
    return chosen, np.log(shares).astype("float32")
