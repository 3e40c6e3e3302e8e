"""Dispatch: evaluate experts only for the examples that chose them."""

import math
from typing import Any

import keras
from keras import ops

from dselectk_keras.distribution import num_replicas
from dselectk_keras.gates import Gate
from dselectk_keras.ops import mix, slot_table
from dselectk_keras.utils import Tensor, is_concrete

# Compiled programs need a fixed number of slots per expert, as a multiple of an even
# share of the choices. For each batch, the smallest of these numbers that is enough is
# used. If none is enough, all experts are evaluated, so that no example is dropped.
# Torch needs no fixed number: each expert has as many slots as the most chosen expert.
SLACKS = (1.25, 1.5, 2, 4)
# On JAX, all branches of a program keep values for gradients. Those after so many are
# rare, and compute their values again.
NUM_KEPT = 3
# With a smaller ratio of all experts to chosen experts, or with smaller kernels, the
# overhead of dispatch is larger than its gain.
MIN_RATIO = 4
MIN_KERNEL = 16_384


def dispatch_is_faster(experts: Any, gate: Gate, num_features: int) -> bool:
    """Estimate whether dispatch is faster than evaluating all experts."""
    return (
        gate.always_sparse
        and experts.can_dispatch
        and experts.num_experts >= MIN_RATIO * num_chosen(experts, gate)
        and num_features * experts.units[0] >= MIN_KERNEL
    )


def num_chosen(experts: Any, gate: Any) -> int:
    """Compute how many experts an example may choose, over all gates."""
    return min(experts.num_experts, gate.max_experts * (gate.num_gates or 1))


def dispatch(
    experts: Any,
    inputs: Tensor,
    weights: Tensor,
    chosen: int,
    capacity: float | None = None,
    valid: Tensor = None,
) -> tuple[Tensor, Tensor]:
    """Mix experts, each evaluated only for the examples that chose it.

    The weights have exact zeros: an example chooses `chosen` experts at most. The
    `capacity` of an expert is a multiple of an even share, beyond which choices are
    dropped; `None` drops nothing. Examples that are not `valid` have weights of zero,
    and have no part in the share. Returns the mixture, and the number of dropped
    choices, or `None` without a capacity.
    """
    inputs = ops.cast(inputs, experts.compute_dtype)
    by_gate = weights if len(weights.shape) == 3 else ops.expand_dims(weights, 1)
    used = ops.any(by_gate != 0, axis=1)

    def sparse(num_slots, limit=None):
        table = slot_table(used, chosen, num_slots, limit)
        seen = ops.take(inputs, table.examples, axis=0)
        outputs = experts.call_slots(seen)
        # A choice without a slot reads another slot, with a weight of zero.
        last = ops.shape(outputs)[0] - 1
        found = ops.take(outputs, ops.minimum(table.places, last), axis=0)
        at = ops.repeat(ops.expand_dims(table.experts, 1), by_gate.shape[1], axis=1)
        shares = ops.take_along_axis(by_gate, at, axis=2)
        shares = shares * ops.cast(ops.expand_dims(table.filled, 1), shares.dtype)
        mixed = mix(found, shares if len(weights.shape) == 3 else shares[:, 0], True)
        return mixed, ops.sum(ops.cast(table.filled, "int32"))

    def dense():
        return mix(experts.call(inputs), weights, True)

    counts = ops.cast(used, "int32")
    batch, n = ops.shape(used)[0], used.shape[1]
    if capacity is not None:
        limit = None
        if valid is not None:
            limit = _num_slots(ops.sum(ops.cast(valid, "int32")), n, chosen, capacity)
        num_slots = _num_slots(batch, n, chosen, capacity)
        mixed, kept = _unless_empty(
            batch, lambda: sparse(num_slots, limit), lambda: (dense(), ops.sum(counts))
        )
        return mixed, ops.sum(counts) - kept

    most = ops.max(ops.sum(counts, axis=0))
    if keras.backend.backend() == "torch":
        sizes = [max(1, int(most))]
    else:
        # With slots for more than half of the examples, the dense form is as fast.
        slacks = [s for s in SLACKS if 2 * s * chosen <= n] or SLACKS[:1]
        sizes = [_num_slots(batch, n, chosen, slack) for slack in slacks]

    def smallest(sizes, num_kept=NUM_KEPT):
        def mixture():
            return sparse(sizes[0])[0]

        few = ops.max(ops.sum(counts, axis=1)) <= chosen
        fits, others = ops.logical_and(few, most <= sizes[0]), sizes[1:]
        # A call of `lax.cond` outside of a compiled program compiles both branches.
        choose = _choose if is_concrete(fits) else ops.cond
        return choose(
            fits,
            mixture if num_kept > 0 else _rematerialized(mixture),
            (lambda: smallest(others, num_kept - 1))
            if others
            else _rematerialized(dense),
        )

    return _unless_empty(batch, lambda: smallest(sizes), dense), None


def _unless_empty(batch, some, none):
    """Call the first function, or the second one if the batch has no examples.

    The last batch of an epoch may leave none for a replica of `tf.distribute`.
    """
    if isinstance(batch, int):
        return some() if batch else none()
    return some() if num_replicas() == 1 else ops.cond(batch > 0, some, none)


def _choose(condition, yes, no):
    return yes() if condition else no()


def _rematerialized(branch):
    """On JAX, make a branch recompute its values in the backward pass.

    On JAX, every branch returns the values that any branch keeps for gradients. The
    dense branch keeps the outputs of all experts, which other branches would fill with
    zeros.
    """
    return keras.remat(branch) if keras.backend.backend() == "jax" else branch


def is_symbolic(tensor: Tensor) -> bool:
    """Check whether a tensor has no values, because Keras only infers shapes."""
    backend = keras.backend.backend()
    if backend == "jax":
        return not all(isinstance(size, int) for size in tensor.shape)
    return backend == "torch" and tensor.device.type == "meta"


def _num_slots(batch, n, chosen, factor):
    """Compute the slots per expert: a multiple of an even share, at most the batch."""
    if isinstance(batch, int):
        return max(1, min(batch, math.ceil(factor * batch * chosen / n)))
    share = ops.ceil(ops.cast(batch, "float32") * (factor * chosen / n))
    return ops.maximum(1, ops.minimum(batch, ops.cast(share, "int32")))
