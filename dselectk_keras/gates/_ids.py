"""What gates share that look at an id instead of features."""

import keras
from keras import ops


def require_ids(gate, kind):
    """Refuse a gate that looks at several columns.

    Args:
        gate: A gate that is being built.
        kind: What its ids are called.
    """
    if gate.routing_dim != 1:
        raise ValueError(
            f"{type(gate).__name__} looks at one {kind} for each example, of shape "
            f"(batch,) or (batch, 1). Received: {gate.routing_dim} columns. Pass the "
            f"column of the {kind}s alone, as in layer(inputs, {kind}s); "
            "`build_multitask_model` takes a model with two outputs as `inputs`."
        )


def look_up(table, ids, count, kind):
    """Rows of a table by their ids, or NaN where an id has no row.

    NaN, because compiled code cannot raise: the weights, and with them the loss, then
    show that an id was wrong.

    Args:
        table: Float tensor `(count, n)`, or `(count, g, n)`.
        ids: Tensor of integers `(batch, 1)`, or `(batch, g, 1)` with an id for each
            gate.
        count: The number of ids that there are.
        kind: What the ids are called in errors.

    Returns:
        A tensor `(batch, [g,] n)`.
    """
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if not keras.backend.is_int_dtype(dtype):
        raise ValueError(
            f"A {kind} must be an integer. Received: routing inputs of dtype {dtype}. "
            'Declare them as keras.Input((1,), dtype="int32"), or cast them.'
        )
    ids = ops.squeeze(ids, -1)
    known = ops.logical_and(ids >= 0, ids < count)
    if _is_concrete(ids) and not bool(ops.all(known)):
        values = ops.convert_to_numpy(ids)
        raise ValueError(
            f"Each {kind} must be one of 0 to {count - 1}. Received: {kind}s from "
            f"{values.min()} to {values.max()}. Number them from 0."
        )
    # Cast last: an id of 64 bits may have a lower half that looks right.
    ids = ops.cast(ops.where(known, ids, ops.zeros_like(ids)), "int32")
    gates = tuple(ids.shape[1:])
    if gates and len(table.shape) == 3:
        rows = ops.reshape(table, (-1, table.shape[-1]))
        found = ops.take(rows, ids * gates[0] + ops.arange(gates[0]), axis=0)
    else:
        found = ops.take(table, ids, axis=0)
    known = ops.reshape(known, (-1, *gates, *[1] * (len(found.shape) - len(ids.shape))))
    return ops.where(known, found, float("nan"))


def _is_concrete(tensor):
    """Whether the values of a tensor can be looked at now."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return hasattr(tensor, "numpy")
    if backend == "jax":
        from jax.core import Tracer  # pyright: ignore[reportMissingImports]

        return not isinstance(tensor, Tracer)
    if backend == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        return tensor.device.type != "meta" and not torch.compiler.is_compiling()
    return False
