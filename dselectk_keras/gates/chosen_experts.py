"""The experts that a static gate has chosen, or is given by their weights."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from dselectk_keras.utils import Tensor, shown

# The softmax of its logarithm is exactly 0 in float32.
_ALMOST_ZERO = 1e-60


class ChosenExperts(NamedTuple):
    """The experts that a static gate has chosen.

    Args:
        choices: The expert of each selector, integers `([num_gates,] k)`; -1 for a
            code without an expert.
        distance: The distance of each selector from a single expert, of the same
            shape; 0.0 for a binary selector.
        logits: The logits of the selectors' shares, of the same shape.
    """

    choices: np.ndarray
    distance: np.ndarray
    logits: np.ndarray


def places_of(choices: Tensor, num_experts: int) -> Tensor:
    """Compute which choice is which expert, 1.0 or 0.0, `(..., k, n)`."""
    experts = ops.arange(num_experts, dtype=choices.dtype)
    return ops.cast(ops.expand_dims(choices, -1) == experts, "float32")


def require_static(gate: Any) -> None:
    """Raise an error for a gate that is per-example or not built."""
    if not gate.built or gate.per_example:
        raise ValueError(
            "Only a static gate that is built has chosen experts. Received: "
            f"{gate.name!r}, {'per-example' if gate.built else 'not built'}. Of a "
            "per-example gate, `condense` takes `data` and `experts`."
        )


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
