"""Experts evaluated only for the examples that chose them."""

import math

import keras
from keras import ops

from dselectk_keras.ops import mix, slot_table

# Slots of an expert, as a multiple of an even share: the first number that suffices for
# the batch at hand. If an expert is chosen more often than all allow, the batch is
# computed densely, so that nothing is ever dropped. (Torch needs no sizes beforehand,
# and gives each expert as many slots as the most chosen one needs.) In training the
# last number costs more than it saves: all branches of a program prepare for gradients.
SLACKS = (1.25, 1.5, 4)
# Choosing and gathering cost more than they save where fewer experts are left out, or
# where the experts are narrow.
MIN_RATIO = 4
MIN_KERNEL = 16_384


def dispatch_is_faster(experts, gate, num_features):
    """Whether dispatch is likely to be faster than evaluating all experts.

    Args:
        experts: A bank.
        gate: A gate that is built.
        num_features: The width of what the experts see.

    Returns:
        A boolean.
    """
    return (
        gate.always_sparse
        and experts.can_dispatch
        and experts.num_experts >= MIN_RATIO * num_chosen(experts, gate)
        and num_features * experts.units[0] >= MIN_KERNEL
    )


def num_chosen(experts, gate):
    """How many experts an example may choose, over all gates.

    Args:
        experts: A bank.
        gate: A gate.

    Returns:
        An integer.
    """
    return min(experts.num_experts, gate.max_experts * (gate.num_gates or 1))


def dispatch(experts, inputs, weights, chosen, capacity=None, training=None):
    """The mixtures of the experts, each evaluated for the examples that chose it.

    Args:
        experts: A bank of stacked experts.
        inputs: Tensor `(batch, ...)`.
        weights: Weights with exact zeros, `(batch, n)` or `(batch, g, n)`.
        chosen: How many experts an example may choose.
        capacity: Slots of an expert as a multiple of an even share; what finds none is
            dropped. `None` drops nothing.
        training: Whether gradients will be asked for.

    Returns:
        A tensor `(batch, ...)` or `(batch, g, ...)`, and the number of choices that
        were dropped.
    """
    inputs = ops.cast(inputs, experts.compute_dtype)
    by_gate = weights if len(weights.shape) == 3 else ops.expand_dims(weights, 1)
    used = ops.any(by_gate != 0, axis=1)

    def sparse(num_slots):
        table = slot_table(used, chosen, num_slots)
        seen = ops.take(inputs, table.examples, axis=0)
        outputs = experts.call_slots(seen)
        # What has no slot reads another one, with a weight of zero.
        last = ops.shape(outputs)[0] - 1
        found = ops.take(outputs, ops.minimum(table.places, last), axis=0)
        at = ops.repeat(ops.expand_dims(table.experts, 1), by_gate.shape[1], axis=1)
        shares = ops.take_along_axis(by_gate, at, axis=2)
        shares = shares * ops.cast(ops.expand_dims(table.filled, 1), shares.dtype)
        mixed = mix(found, shares if len(weights.shape) == 3 else shares[:, 0], True)
        return mixed, ops.sum(ops.cast(table.filled, "int32"))

    counts = ops.cast(used, "int32")
    if capacity is not None:
        mixed, kept = sparse(_num_slots(used, chosen, capacity))
        return mixed, ops.sum(counts) - kept

    most = ops.max(ops.sum(counts, axis=0))
    if keras.backend.backend() == "torch":
        sizes = [max(1, int(most))]
    else:
        slacks = SLACKS[:-1] if training else SLACKS
        sizes = [_num_slots(used, chosen, slack) for slack in slacks]
    few = ops.max(ops.sum(counts, axis=1)) <= chosen

    def dense():
        return mix(experts.call(inputs), weights, True)

    def smallest(sizes):
        fits, others = ops.logical_and(few, most <= sizes[0]), sizes[1:]
        return ops.cond(
            fits,
            lambda: sparse(sizes[0])[0],
            (lambda: smallest(others)) if others else _rematerialized(dense),
        )

    return smallest(sizes), None


def _rematerialized(branch):
    """A branch that keeps nothing for its gradient, where it would cost the others.

    On JAX every branch gives what any of them keeps: for the dense one that is the
    output of all experts, filled with zeros in vain.
    """
    return keras.remat(branch) if keras.backend.backend() == "jax" else branch


def is_symbolic(tensor):
    """Whether Keras is only asking for shapes, with a tensor that has no values."""
    backend = keras.backend.backend()
    if backend == "jax":
        return not isinstance(tensor.shape[0], int)
    return backend == "torch" and tensor.device.type == "meta"


def _num_slots(used, chosen, factor):
    """Slots of an expert: a multiple of an even share, no more than examples."""
    batch, n = ops.shape(used)[0], used.shape[1]
    if isinstance(batch, int):
        return max(1, min(batch, math.ceil(factor * batch * chosen / n)))
    share = ops.ceil(ops.cast(batch, "float32") * (factor * chosen / n))
    return ops.maximum(1, ops.minimum(batch, ops.cast(share, "int32")))
