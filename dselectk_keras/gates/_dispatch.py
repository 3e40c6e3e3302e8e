"""Dispatch: evaluate experts only for the examples that chose them."""

import functools
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
        args = experts, inputs, weights, choices_of(weights, chosen)
        if capacity is None:
            return _without_drops(*args), None
        return _with_capacity(*args, capacity, valid)

    arrays = inputs, weights, valid
    if is_concrete(inputs):
        return part(*arrays)
    return on_each_device(part, experts, arrays)


def _with_capacity(experts, inputs, weights, choices, capacity, valid):
    """Mix with a fixed number of slots, and count the choices that find none."""
    batch, n, chosen = _num_rows(weights), weights.shape[-1], choices.made.shape[1]

    def sparse():
        num_slots = limit = _num_slots(batch, n, chosen, capacity)
        if valid is not None:
            limit = _num_slots(count(valid), n, chosen, capacity)
        filled = ops.logical_and(choices.made, choices.ranks < limit)
        mixture = _mix_slots(experts, inputs, choices.only(filled), num_slots)
        return mixture, count(choices.made) - count(filled)

    def dense():
        return mix(experts.call(inputs), weights, True), count(choices.made)

    def count(booleans):
        return ops.sum(ops.cast(booleans, "int"))

    return _unless_empty(batch, sparse, dense)


def _without_drops(experts, inputs, weights, choices):
    """Mix with the smallest number of slots that is enough, or else all experts."""
    batch, n, chosen = _num_rows(weights), weights.shape[-1], choices.made.shape[1]
    on_torch = keras.backend.backend() == "torch"
    sparse = functools.partial(_mix_slots, experts, inputs, choices)

    def dense():
        return mix(experts.call(inputs), weights, True)

    def smallest():
        needed = ops.where(choices.all_made, ops.max(choices.ranks) + 1, 2**31 - 1)
        if on_torch:
            needed = int(needed)
            sizes = [min(needed, batch)]
        else:
            # With slots for more than half of the examples, the dense form is as fast.
            slacks = [s for s in SLACKS if 2 * s * chosen <= n] or SLACKS[:1]
            sizes = [_num_slots(batch, n, chosen, slack) for slack in slacks]
        # A call of `lax.cond` outside of a compiled program compiles both branches.
        if on_torch or is_concrete(needed):
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


def _mix_slots(experts, inputs, choices, num_slots):
    """Evaluate the experts for the examples in their slots, and mix their outputs."""
    examples, places = slot_table(choices, experts.num_experts, num_slots)
    outputs = experts.call_slots(ops.take(inputs, examples, axis=0))
    mixture = mix(ops.take(outputs, places, axis=0), choices.weights, True)
    # Without a choice, an example reads the slot of another one, which may be NaN.
    some = ops.any(choices.made, axis=1)
    some = ops.reshape(some, (-1, *[1] * (len(mixture.shape) - 1)))
    return ops.where(some, mixture, ops.zeros((), mixture.dtype))


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


def _num_rows(tensor):
    """The size of a batch, an integer if it is known."""
    size = ops.shape(tensor)[0]
    return size if isinstance(size, int) else ops.cast(size, "int")


def _num_slots(count, n, chosen, factor):
    """Compute the slots per expert: a multiple of an even share of the choices.

    It is exact, for an integer and for a tensor. The factor has three decimals.
    """
    whole = 1000 * n
    share = min(round(1000 * factor) * chosen, whole)
    if isinstance(count, int):
        return max(1, -(-count * share // whole))
    # Float32 is some integers off at most. Both products may overflow in int32, but
    # not their difference.
    count = ops.cast(count, "int")
    near = ops.cast(ops.cast(count, "float32") * (share / whole), "int")
    excess = near * whole - count * share
    return ops.maximum(near - excess // whole, 1)


class Choices(NamedTuple):
    """The experts that each example chose, in their order, `(batch, chosen)`."""

    # Whether there is such a choice.
    made: Tensor
    # The experts, and the numbers of earlier examples that chose them; or 0.
    experts: Tensor
    ranks: Tensor
    # The weights of the experts, `(batch, [num_gates,] chosen)`; or 0.
    weights: Tensor
    # Whether no example chose more experts, a scalar.
    all_made: Tensor

    def only(self, kept: Tensor) -> "Choices":
        """Leave out the choices that are not kept."""
        factors = ops.cast(kept, self.weights.dtype)
        if len(self.weights.shape) == 3:
            factors = ops.expand_dims(factors, 1)
        return self._replace(made=kept, weights=self.weights * factors)


def choices_of(weights: Tensor, num_chosen: int) -> Choices:
    """List the experts with nonzero weights, `num_chosen` for each example at most."""
    weights = ops.convert_to_tensor(weights)
    used = weights != 0
    if len(weights.shape) == 3:
        used = ops.any(used, axis=1)
    # On TensorFlow, "int" is int64. It computes with int32 on the host.
    counts = ops.cast(used, "int")
    numbers = ops.sum(counts, axis=1, keepdims=True)
    # order[b, i]: position of expert i among those that example b chose, from 1; 0 if
    # it did not. Sorting would give the order too, in twice the time.
    order = ops.cumsum(counts, axis=1) * counts
    position = ops.arange(1, num_chosen + 1, dtype="int")
    matches = ops.expand_dims(order, 1) == ops.reshape(position, (1, -1, 1))
    matches = ops.cast(matches, "int")
    experts = ops.sum(matches * ops.arange(weights.shape[-1], dtype="int"), axis=2)
    ranks = ops.expand_dims(ops.cumsum(counts, axis=0) - 1, 1)
    ranks = ops.sum(matches * ranks, axis=2)
    at = experts
    if len(weights.shape) == 3:
        at = ops.repeat(ops.expand_dims(at, 1), weights.shape[1], axis=1)
    weights = ops.take_along_axis(weights, at, axis=-1)
    made, all_made = position <= numbers, ops.all(numbers <= num_chosen)
    return Choices(made, experts, ranks, weights, all_made).only(made)


def slot_table(choices: Choices, n: int, num_slots: Any) -> tuple[Tensor, Tensor]:
    """Give the choices slots of their experts, in the order of the examples.

    In place of a choice that is not made, there is another slot of the example, or some
    slot if it has none. In an empty slot, there is some example. They differ: on a GPU,
    gradients by one row would wait for each other.

    Returns:
        The example in each slot, `(n * num_slots,)`, and the slot of each choice,
        `(batch, chosen)`.
    """
    made, batch, chosen = choices.made, _num_rows(choices.made), choices.made.shape[1]
    places, end = choices.experts * num_slots + choices.ranks, n * num_slots
    # Not `scatter`: on torch it is a loop over the rows.
    examples = ops.scatter_update(
        ops.arange(end + 1, dtype="int") % batch,
        # What is no choice goes to an extra slot after the last, which is cut off.
        ops.reshape(ops.where(made, places, end), (-1, 1)),
        ops.arange(batch * chosen, dtype="int") // chosen,
    )[:-1]
    rows = ops.expand_dims(ops.arange(batch, dtype="int"), 1)
    own = ops.where(made, places, ops.zeros_like(places))
    some = ops.any(made, axis=1, keepdims=True)
    other = ops.where(some, ops.max(own, axis=1, keepdims=True), rows % end)
    return examples, ops.where(made, places, other)
