"""Weighted sum of the experts."""

import math
import operator
from typing import Any

import keras
from keras import ops

from dselectk_keras.utils import Tensor


def mix(experts: Any, weights: Tensor, per_example: bool = False) -> Tensor:
    r"""The weighted sums of the experts' outputs, for all gates at once.

    $$
    y_g = \sum_{i=1}^{n} w_{g,i} \, f_i
    $$

    Args:
        experts: Tensor `(batch, n, ...)`, the outputs of the experts; or a list of n
            tensors `(batch, ...)`.
        weights: The weights of one gate, `(n,)`, or of several, `(g, n)`; with
            `per_example`, `(batch, n)` or `(batch, g, n)`.
        per_example: Whether `weights` have a batch axis.

    Returns:
        A tensor `(batch, ...)` for one gate, `(batch, g, ...)` for several, of
        the dtype of `experts`; of integers, in float32.

    Example:
        >>> found = mix([[[1.0], [2.0], [4.0]]], [0.5, 0.5, 0.0])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [[1.5]]
    """
    if isinstance(experts, list) and hasattr(experts[0], "shape"):
        experts = ops.stack(experts, axis=1)
    experts = ops.convert_to_tensor(experts)
    if not keras.backend.is_float_dtype(experts.dtype):
        experts = ops.cast(experts, "float32")
    weights = ops.cast(weights, experts.dtype)
    if experts.shape[1] != weights.shape[-1]:
        raise ValueError(
            f"`weights` must have one weight for each of {experts.shape[1]} experts. "
            f"Received: {weights.shape[-1]} weights."
        )
    if len(weights.shape) > 1 + per_example:
        return _product(experts, weights, per_example)
    return _product(experts, ops.expand_dims(weights, -2), per_example)[:, 0]


def put_side_by_side(experts: Tensor, choices: Tensor) -> Tensor:
    """Put the chosen experts of each gate side by side, on the last axis.

    Args:
        experts: Tensor `(batch, n, ..., units)`, the outputs of the experts.
        choices: Integers `([num_gates,] k)`; -1 is no expert, and gives zeros.

    Returns:
        A tensor `(batch, [num_gates,] ..., k * units)`.
    """
    *gates, k = choices.shape
    placed = ops.take(experts, ops.maximum(choices, 0), axis=1)
    exists = ops.reshape(choices >= 0, (*gates, k, *[1] * (len(experts.shape) - 2)))
    placed = ops.where(exists, placed, ops.zeros((), placed.dtype))
    placed = ops.moveaxis(placed, len(gates) + 1, -2)
    middle = list(ops.shape(placed)[1:-2])
    return ops.reshape(placed, (-1, *middle, k * experts.shape[-1]))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Compute a matrix product: on torch, Keras multiplies float64 in float32."""
    on_torch = keras.backend.backend() == "torch"
    if not on_torch or keras.backend.standardize_dtype(x.dtype) != "float64":
        return ops.matmul(x, y)
    return operator.matmul(x, ops.cast(y, "float64"))


def mix_parameters(weights: Tensor, parameters: Tensor) -> Tensor:
    """Compute the weighted sums `(..., *shape)` of parameters `(n, *shape)`."""
    n, *shape = parameters.shape
    mixed = matmul(weights, ops.reshape(parameters, (n, math.prod(shape))))
    return ops.reshape(mixed, (*ops.shape(weights)[:-1], *shape))


def _product(experts, weights, per_example):
    """One product of `(b, n, ...)` and `([b,] g, n)` to `(b, g, ...)`."""
    n, *trailing = experts.shape[1:]
    # Unknown sizes are symbols on JAX, and None elsewhere.
    static = all(isinstance(size, int) for size in trailing)
    size = math.prod(trailing) if static else -1
    batch = -1 if static else ops.shape(experts)[0]
    num_gates = weights.shape[-2]
    flat = ops.reshape(experts, (batch, n, size))
    if static and not per_example and size < num_gates:
        # With many gates and few features, (features, n) by (n, gates) is 2 to 13 times
        # as fast as (gates, n) by (n, features) on a CPU.
        mixed = matmul(ops.transpose(flat, (0, 2, 1)), ops.transpose(weights))
        mixed = ops.transpose(mixed, (0, 2, 1))
    else:
        mixed = matmul(weights, flat)
    tail = trailing if static else list(ops.shape(experts)[2:])
    return ops.reshape(mixed, (batch, num_gates, *tail))
