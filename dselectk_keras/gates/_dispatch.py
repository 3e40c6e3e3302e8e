"""Dispatch: evaluate experts only for the examples that chose them."""

import functools
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from dselectk_keras.distribution import num_replicas, on_each_device
from dselectk_keras.ops import mix
from dselectk_keras.utils import Tensor, is_concrete

# Compiled programs need a fixed number of slots per expert: the smallest of these
# multiples of an even share of the choices that is enough. If none is, all experts are
# evaluated. Torch needs no fixed number: it takes as many as the most chosen expert.
SLACKS = (1.25, 1.5, 2, 4)
# On JAX, all branches of a program keep values for gradients. Those after so many are
# rare, and compute their values again.
NUM_KEPT = 3


def dispatch(
    experts: Any,
    inputs: Tensor,
    weights: Tensor,
    chosen: int,
    capacity: float | None = None,
    valid: Tensor = None,
) -> tuple[Tensor, Tensor]:
    """Mix experts, each evaluated only for the examples that chose it.

    See `Routing.dispatch`. The weights have exact zeros: an example chooses `chosen`
    experts at most. Examples that are not `valid` have weights of zero, and no part in
    an even share. Devices that share a batch each dispatch their part.
    """
    inputs = ops.cast(inputs, experts.compute_dtype)

    def part(inputs, weights, valid):
        used = weights != 0
        if len(weights.shape) == 3:
            used = ops.any(used, axis=1)
        args = experts, inputs, weights, used, chosen
        if capacity is None:
            return _without_drops(*args), None
        return _with_capacity(*args, capacity, valid)

    arrays = inputs, weights, valid
    if is_concrete(inputs):
        return part(*arrays)
    return on_each_device(part, experts, arrays)


def _with_capacity(experts, inputs, weights, used, chosen, capacity, valid):
    """Mix with a fixed number of slots, and count the choices that find none."""
    batch, n = ops.shape(used)[0], used.shape[1]
    total = ops.sum(ops.cast(used, "int32"))

    def sparse():
        num_slots, limit = _num_slots(batch, n, chosen, capacity), None
        if valid is not None:
            num_valid = ops.sum(ops.cast(valid, "int32"))
            limit = _num_slots(num_valid, n, chosen, capacity)
        table = slot_table(used, chosen, num_slots, limit)
        dropped = total - ops.sum(ops.cast(table.filled, "int32"))
        return _mix_slots(experts, inputs, weights, table), dropped

    def dense():
        return mix(experts.call(inputs), weights, True), ops.zeros_like(total)

    return _unless_empty(batch, sparse, dense)


def _without_drops(experts, inputs, weights, used, chosen):
    """Mix with the smallest number of slots that is enough, or else all experts."""
    batch, n = ops.shape(used)[0], used.shape[1]
    counts = ops.cast(used, "int32")
    few = ops.all(ops.sum(counts, axis=1) <= chosen)
    needed = ops.where(few, ops.max(ops.sum(counts, axis=0)), 2**31 - 1)
    if keras.backend.backend() == "torch":
        sizes = [max(1, int(needed))] if int(needed) <= batch else []
    else:
        # With slots for more than half of the examples, the dense form is as fast.
        slacks = [s for s in SLACKS if 2 * s * chosen <= n] or SLACKS[:1]
        sizes = [_num_slots(batch, n, chosen, slack) for slack in slacks]

    def sparse(num_slots):
        table = slot_table(used, chosen, num_slots)
        return _mix_slots(experts, inputs, weights, table)

    def dense():
        return mix(experts.call(inputs), weights, True)

    def smallest():
        # A call of `lax.cond` outside of a compiled program compiles both branches.
        if is_concrete(needed):
            enough = [size for size in sizes if needed <= size]
            return sparse(enough[0]) if enough else dense()
        mixture = _rematerialized(dense)
        for i, size in reversed([*enumerate(sizes)]):
            branch = functools.partial(sparse, size)
            branch = branch if i < NUM_KEPT else _rematerialized(branch)
            fits = _of_all_copies(needed <= size)
            mixture = functools.partial(ops.cond, fits, branch, mixture)
        return mixture()

    return _unless_empty(batch, smallest, dense)


def _mix_slots(experts, inputs, weights, table):
    """Evaluate the experts for the examples in their slots, and mix their outputs."""
    outputs = experts.call_slots(ops.take(inputs, table.examples, axis=0))
    # A choice without a slot reads another slot, with a weight of zero.
    last = ops.shape(outputs)[0] - 1
    found = ops.take(outputs, ops.minimum(table.places, last), axis=0)
    at, filled = table.experts, ops.cast(table.filled, weights.dtype)
    if len(weights.shape) == 3:
        at = ops.repeat(ops.expand_dims(at, 1), weights.shape[1], axis=1)
        filled = ops.expand_dims(filled, 1)
    return mix(found, ops.take_along_axis(weights, at, axis=-1) * filled, True)


def _unless_empty(batch, some, none):
    """Call the first function, or the second one if the batch has no examples.

    The last batch of an epoch may leave none for a replica of `tf.distribute`.
    """
    if isinstance(batch, int):
        return some() if batch else none()
    return some() if num_replicas() == 1 else ops.cond(batch > 0, some, none)


def _of_all_copies(condition):
    """On JAX, make one condition of those of all copies that `vmap` computes at once.

    With a condition for each copy, `vmap` would compute both branches for all copies.
    """
    if keras.backend.backend() != "jax":
        return condition
    import jax  # pyright: ignore[reportMissingImports]

    @jax.custom_batching.custom_vmap
    def same(condition):
        return condition

    @same.def_vmap
    def of_all(_size, _is_batched, conditions):
        return _of_all_copies(conditions.all(axis=0)), False

    return same(condition)


def _rematerialized(branch):
    """On JAX, make a branch recompute its values in the backward pass.

    Every branch returns the values that any branch keeps for gradients. The dense one
    keeps the outputs of all experts, which others would fill with zeros.
    """
    return keras.remat(branch) if keras.backend.backend() == "jax" else branch


def _num_slots(batch, n, chosen, factor):
    """Compute the slots per expert: a multiple of an even share, at most the batch."""
    if isinstance(batch, int):
        return max(1, min(batch, math.ceil(factor * batch * chosen / n)))
    share = ops.ceil(ops.cast(batch, "float32") * (factor * chosen / n))
    return ops.maximum(1, ops.minimum(batch, ops.cast(share, "int32")))


class SlotTable(NamedTuple):
    """The slots of the experts, filled with the examples that chose them."""

    # The example in each slot, integers `(n * slots,)`; 0 in empty slots.
    examples: Tensor
    # The experts that each example chose, `(batch, chosen)`; 0 where it chose fewer.
    experts: Tensor
    # The slots of these experts' outputs, and whether the example has that slot.
    places: Tensor
    filled: Tensor


def slot_table(
    used: Tensor, num_chosen: int, num_slots: int, limit: Tensor = None
) -> SlotTable:
    """Assign each example to a slot of every expert that it chose, in their order.

    `used` is boolean, `(batch, n)`: whether the example chose the expert. An example is
    dropped where the `num_slots` of the expert are full (of which no more than `limit`
    may be filled, a tensor), or where it chose more than `num_chosen` experts.
    """
    used = ops.convert_to_tensor(used)
    batch, n = ops.shape(used)[0], used.shape[1]
    counts = ops.cast(used, "int32")
    # order[b, i]: position of expert i among those that example b chose, from 1; 0 if
    # it did not. rank[b, i]: number of earlier examples that chose expert i. Sorting
    # would give the order too, in twice the time.
    order = ops.cumsum(counts, axis=1) * counts
    rank = ops.cumsum(counts, axis=0) - 1
    position = ops.arange(1, num_chosen + 1, dtype="int32")
    matches = ops.expand_dims(order, 1) == ops.reshape(position, (1, -1, 1))
    matches = ops.cast(matches, "int32")
    experts = ops.sum(matches * ops.arange(n, dtype="int32"), axis=2)
    rank = ops.sum(matches * ops.expand_dims(rank, 1), axis=2)
    filled = position <= ops.sum(counts, axis=1, keepdims=True)
    filled = ops.logical_and(filled, rank < (num_slots if limit is None else limit))
    # Dropped examples go to an extra slot after the last, which is cut off.
    places = ops.where(filled, experts * num_slots + rank, n * num_slots)
    rows = ops.arange(batch, dtype="int32")
    rows = ops.repeat(ops.expand_dims(rows, 1), num_chosen, axis=1)
    # Not `scatter`: on torch it is a loop over the rows.
    examples = ops.scatter_update(
        ops.zeros((n * num_slots + 1,), dtype="int32"),
        ops.reshape(places, (-1, 1)),
        ops.reshape(rows, (-1,)),
    )[:-1]
    return SlotTable(examples, experts, places, filled)
