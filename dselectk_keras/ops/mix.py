"""Weighted sum of the experts."""

import math
import operator
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.distribution import is_model_parallel
from dselectk_keras.ops.unstack import unstack
from dselectk_keras.utils import Tensor

# For wide experts and few gates, adding up the weighted experts one by one takes 0.2 to
# 0.9 of the time of a matrix product, for which they must be stacked. The product is
# faster with more gates, and on torch with per-example weights
# (`docs/measurements.md`), and on JAX with more than 32 experts.
_WIDE, _FEW_GATES, _FEW_EXPERTS = 256, 8, {"jax": 32}


def mix(
    experts: Tensor, weights: Tensor, per_example: bool = False, used: Any = None
) -> Tensor:
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
        used: Which experts each gate uses, if that is known statically: a NumPy array
            of booleans `(n,)` or `(g, n)`. The other experts must have weight 0 and
            are skipped.

    Returns:
        A tensor `(batch, ...)` for one gate, `(batch, g, ...)` for several, of
        the dtype of `experts`; of integers, in float32.

    Example:
        >>> np.asarray(mix([[[1.0], [2.0], [4.0]]], [0.5, 0.5, 0.0])).tolist()
        [[1.5]]
    """
    if not isinstance(experts, list) or not hasattr(experts[0], "shape"):
        experts = ops.convert_to_tensor(experts)
    is_list = isinstance(experts, list)
    first = experts[0] if is_list else experts
    if not keras.backend.is_float_dtype(first.dtype):
        real: Any = keras.tree.map_structure(lambda x: ops.cast(x, "float32"), experts)
        return mix(real, weights, per_example, used)
    weights = ops.cast(weights, first.dtype)
    one_gate = len(weights.shape) == 1 + per_example
    if one_gate:
        weights = ops.expand_dims(weights, -2)
    num_gates, n = weights.shape[-2:]
    trailing = first.shape[1 if is_list else 2 :]
    if _sum_is_faster(first.dtype, trailing, num_gates, n, is_list, per_example):
        columns = experts if is_list else unstack(experts, 1)
        if len(columns) != n:
            raise ValueError(
                f"`weights` must have one weight for each of {len(columns)} experts. "
                f"Received: {n} weights."
            )
        used = np.ones((num_gates, n)) if used is None else np.reshape(used, (-1, n))
        ones = [1] * (len(trailing) - 1)
        shares = ops.reshape(weights, (-1, num_gates * n, *ones))
        shares = ops.split(shares, num_gates * n, axis=1)
        mixtures = []
        for g, own in enumerate(used):
            # The mixture of a gate that uses no expert is zero.
            chosen = np.flatnonzero(own) if np.any(own) else [0]
            terms = [ops.multiply(columns[i], shares[g * n + i]) for i in chosen]
            mixtures.append(sum(terms[1:], terms[0]))
        return mixtures[0] if one_gate else ops.stack(mixtures, axis=1)
    stacked = ops.stack(experts, axis=1) if is_list else experts
    mixed = _product(stacked, weights, per_example)
    return mixed[:, 0] if one_gate else mixed


def _sum_is_faster(dtype, trailing, num_gates, n, is_list, per_example):
    backend = keras.backend.backend()
    return (
        _are_static(trailing)
        and math.prod(trailing) >= _WIDE
        # In half precision a matrix product is more accurate than a sum.
        and keras.backend.standardize_dtype(dtype) in {"float32", "float64"}
        and num_gates <= _FEW_GATES
        and n <= _FEW_EXPERTS.get(backend, 128)
        # JAX optimizes away a stack that is split again.
        and (backend == "jax" or is_list)
        and not (backend == "torch" and per_example)
        and not is_model_parallel()
    )


def _product(experts, weights, per_example):
    """One product of `(b, n, ...)` and `([b,] g, n)` to `(b, g, ...)`."""
    n, *trailing = experts.shape[1:]
    static = _are_static(trailing)
    size = math.prod(trailing) if static else -1
    batch = -1 if static else ops.shape(experts)[0]
    num_gates = weights.shape[-2]
    # On torch, `ops.matmul` multiplies float64 in float32.
    is_double = keras.backend.standardize_dtype(experts.dtype) == "float64"
    matmul = operator.matmul if is_double else ops.matmul
    if static and not per_example and keras.backend.backend() == "torch":
        # No copy where the experts come first in memory, as in `DenseExperts`.
        flat = ops.reshape(ops.moveaxis(experts, 1, 0), (n, -1))
        mixed = ops.reshape(matmul(weights, flat), (num_gates, -1, *trailing))
        return ops.moveaxis(mixed, 0, 1)
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


def _are_static(sizes):
    # Unknown sizes are symbols on JAX, and None elsewhere.
    return all(isinstance(size, int) for size in sizes)
