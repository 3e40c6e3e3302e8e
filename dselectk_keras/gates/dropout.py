"""Dropping experts in training."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.utils import Tensor


def drop_logits(logits: Tensor, rate: float, seed: Any) -> Tensor:
    """Set the logits `(..., n)` of dropped experts to minus infinity.

    If all experts would be dropped, none is. With a rate of 0, nothing is drawn.
    """
    if not rate:
        return logits
    draw = keras.random.uniform(ops.shape(logits), seed=seed, dtype="float32")
    keep = draw >= rate
    keep = ops.logical_or(keep, ops.logical_not(ops.any(keep, -1, keepdims=True)))
    return ops.where(keep, logits, -float("inf"))


def drop_weights(weights: Tensor, rate: float, seed: Any) -> Tensor:
    """Set weights `(..., n)` of dropped experts to zero, and scale others up."""
    if not rate:
        return weights
    dropped = drop_logits(ops.zeros_like(weights), rate, seed) < 0
    total = ops.sum(weights, axis=-1, keepdims=True)
    kept = ops.where(dropped, 0.0, weights)
    left = ops.sum(kept, axis=-1, keepdims=True)
    scaled = kept * total / ops.where(left > 0, left, 1.0)
    return ops.where(left > 0, scaled, weights)
