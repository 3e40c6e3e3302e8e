"""Checks and look-ups for gates whose routing inputs are ids."""

import keras
from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.utils import Tensor, is_concrete


def require_ids(gate: Gate, kind: str) -> None:
    """Raise an error for a gate with several columns of routing inputs."""
    if gate.routing_dim != 1:
        raise ValueError(
            f"{type(gate).__name__} needs one {kind} for each example, of shape "
            f"(batch,) or (batch, 1). Received: {gate.routing_dim} columns. Pass only "
            f"the {kind}s as routing inputs, as in layer(inputs, {kind}s). For "
            "`build_multitask_model`, pass a model with two outputs as `inputs`."
        )


def check_ids(ids: Tensor, kind: str) -> str:
    """Return the dtype of ids, or raise an error if it is not one of integers."""
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if not keras.backend.is_int_dtype(dtype):
        raise ValueError(
            f"Each {kind} must be an integer. Received: routing inputs of dtype "
            f'{dtype}. Declare them as keras.Input((1,), dtype="int32"), or cast them.'
        )
    return dtype


def look_up(table: Tensor, ids: Tensor, count: int, kind: str) -> Tensor:
    """Look up rows of a table `(count, [g,] n)` by ids `(batch, [g,] 1)`.

    An id out of range raises an error, which has the kind of the ids. Compiled code
    cannot raise, and a GPU would have to be waited for: they return NaN, so that the
    loss shows the wrong id.
    """
    if "64" not in check_ids(ids, kind):
        # The number of ids may be none of the numbers of a smaller type.
        ids = ops.cast(ids, "int")
    ids = ops.squeeze(ids, -1)
    known = ops.logical_and(ids >= 0, ids < count)
    if is_concrete(ids) and _is_on_host(ids) and not bool(ops.all(known)):
        values = ops.convert_to_numpy(ids)
        raise ValueError(
            f"Each {kind} must be an integer from 0 to {count - 1}. Received: {kind}s "
            f"from {values.min()} to {values.max()}. Number the {kind}s from 0."
        )
    # Cast after the check: the lower half of a wrong 64-bit id may be in range.
    ids = ops.cast(ops.where(known, ids, ops.zeros_like(ids)), "int")
    gates = tuple(ids.shape[1:])
    if gates and len(table.shape) == 3:
        rows = ops.reshape(table, (-1, table.shape[-1]))
        found = ops.take(
            rows, ids * gates[0] + ops.arange(gates[0], dtype="int"), axis=0
        )
    else:
        found = ops.take(table, ids, axis=0)
    known = ops.reshape(known, (-1, *gates, *[1] * (len(found.shape) - len(ids.shape))))
    return ops.where(known, found, float("nan"))


def _is_on_host(tensor):
    """Check whether the values of a concrete tensor can be read without waiting."""
    return "cpu" in str(tensor.device).lower()
