"""Dispatch: evaluate experts only for the examples that chose them."""

import functools
import inspect
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from dselectk_keras.distribution import is_on_cpu, num_replicas, on_each_device
from dselectk_keras.ops import mix, sum_segments
from dselectk_keras.utils import Tensor, is_concrete

# On a CPU, experts have this multiple of an even share of the choices as slots, if that
# is enough for the most chosen one.
SLACK = 1.5
# Else, and on other devices, slots are in blocks, each with a copy of a kernel. In the
# time of a copy, in a training step, a device multiplies about as many rows by the
# kernel. Estimated for an H100, at 3 TB/s and 400 TFLOPS, or 60 for the float32 of
# torch; and for a core of a processor, at 10 GB/s and 100 GFLOPS.
ROWS_PER_COPY = {"cpu": 32, "torch": 67, "gpu": 444}


def dispatch(
    experts: Any,
    inputs: Tensor,
    weights: Tensor,
    chosen: int,
    capacity: float | None = None,
    valid: Tensor = None,
    when: Any = None,
) -> tuple[Tensor, Tensor]:
    """Mix experts, each evaluated only for the examples that chose it.

    See `Routing.dispatch`. The weights have exact zeros: an example chooses `chosen`
    experts at most, or all experts are evaluated: unless `when` holds, a boolean or a
    scalar, or by default if an example chose more. Examples that are not
    `valid` have weights of zero, and no part in an even share of a capacity. Devices
    that share a batch each dispatch their part.
    """
    inputs = ops.cast(inputs, experts.compute_dtype)

    def part(inputs, weights, valid):
        args = experts, inputs, weights, choices_of(weights, chosen)
        if capacity is None:
            return _without_drops(*args, when), None
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
        slots = even_slots(n, num_slots)
        mixture = _mix_slots(experts, inputs, choices.only(filled), slots)
        return mixture, count(choices.made) - count(filled)

    def dense():
        return mix(experts.call(inputs), weights, True), count(choices.made)

    def count(booleans):
        return ops.sum(ops.cast(booleans, "int"))

    return _unless_empty(batch, sparse, dense)


def _without_drops(experts, inputs, weights, choices, when):
    """Mix with slots for all choices; or all experts, if an example chose too many."""
    batch, n, chosen = _num_rows(weights), weights.shape[-1], choices.made.shape[1]
    with_slots = functools.partial(_mix_slots, experts, inputs, choices)
    on_torch, needed = keras.backend.backend() == "torch", ops.amax(choices.loads)
    # A bank may know only the slots of all experts, in their order.
    knows_blocks = "owners" in inspect.signature(experts.call_slots).parameters

    def dense():
        return mix(experts.call(inputs), weights, True)

    def in_blocks(device=None):
        rows = rows_per_copy(experts, inputs, device)
        return with_slots(block_slots(choices, *blocks_for(batch, n, chosen, rows)))

    def evenly():
        size, most = _num_slots(batch, n, chosen, SLACK), needed
        rest = functools.partial(in_blocks, "cpu") if knows_blocks else dense
        if on_torch and is_concrete(needed):
            # Without a program, exactly as many as the most chosen expert needs.
            most = max(1, int(needed))  # Where no position counts, one of zeros.
            size = min(most, size) if knows_blocks else most
        return _if(most <= size, lambda: with_slots(even_slots(n, size)), rest)

    def sparse():
        return _by_device(inputs, evenly, in_blocks if knows_blocks else evenly)

    def exact():
        condition = choices.all_made if when is None else when
        return sparse() if condition is True else _if(condition, sparse, dense)

    return _unless_empty(batch, exact, dense)


def _by_device(tensor, on_cpu, elsewhere):
    """Call one of two functions without arguments: the first one on a CPU.

    A GPU makes the host wait for each condition. A CPU takes longer to copy kernels.
    """
    backend = keras.backend.backend()
    if backend == "jax" and not is_concrete(tensor):
        import jax  # pyright: ignore[reportMissingImports]

        return jax.lax.platform_dependent(cpu=on_cpu, default=elsewhere)
    # A program of torch has no conditions.
    waits = backend != "torch" or is_concrete(tensor)
    return on_cpu() if waits and is_on_cpu(tensor) else elsewhere()


def _if(condition, usual, rare):
    """Call one of two functions without arguments. Both have the same outputs."""
    # A call of `lax.cond` outside of a compiled program compiles both branches.
    if isinstance(condition, bool) or is_concrete(condition):
        return usual() if condition else rare()
    if keras.backend.backend() == "torch":
        return rare()  # A program of torch has no conditions.
    if keras.backend.backend() == "jax":
        # Every branch returns the values that any branch keeps for gradients. A rare
        # one keeps the outputs of all experts, or their kernels: it recomputes them.
        rare = keras.remat(rare)
    return ops.cond(_of_all_copies(condition), usual, rare)


def _mix_slots(experts, inputs, choices, slots):
    """Evaluate the experts for the examples in their slots, and mix their outputs."""
    readers, places = slot_table(choices, slots)  # (slots,), (b, chosen)
    given = _move(inputs, readers // choices.made.shape[1], places)  # (slots, ..., d)
    of_blocks = () if slots.owners is None else (slots.owners,)
    outputs = experts.call_slots(given, *of_blocks)  # (slots, ..., units)
    # Outputs: (b, chosen, ..., units).
    outputs = _move(outputs, places, ops.expand_dims(readers, 1))
    return mix(outputs, choices.weights, True)  # (b, [g,] ..., units)


def _move(x, rows, readers):
    """Take rows of a tensor, with a gradient that takes rows too.

    The gradient of `ops.take` adds rows up. On a GPU these additions wait for each
    other, and TensorFlow cannot compile them with XLA in a condition.

    Args:
        x: Tensor `(size, ...)`.
        rows: Integers of any shape; a negative one is a row of zeros.
        readers: Integers `(size, r)`: all places in `rows`, flattened, of each row of
            `x`; or negative ones.
    """

    def take(x, rows):
        exists = rows >= 0
        taken = ops.take(x, rows * ops.cast(exists, rows.dtype), axis=0)
        exists = ops.reshape(exists, (*ops.shape(rows), *[1] * (len(x.shape) - 1)))
        return ops.where(exists, taken, ops.zeros((), taken.dtype))

    # JAX wants all tensors as arguments.
    @ops.custom_gradient
    def move(x, rows, readers):
        def gradient(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            shape = ops.shape(upstream)[len(rows.shape) :]
            upstream = ops.reshape(upstream, (-1, *shape))
            return ops.sum(take(upstream, readers), axis=1), None, None

        return take(x, rows), gradient

    return move(x, rows, readers)


def _unless_empty(batch, some, none):
    """Call the first function, or the second if a replica has no examples."""
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


def _num_rows(tensor):
    """The size of a batch: a tensor if TensorFlow does not know it."""
    size = ops.shape(tensor)[0]
    return ops.cast(size, "int") if hasattr(size, "dtype") else size


def _num_slots(count, n, chosen, factor):
    """Compute the slots per expert: a multiple of an even share of the choices.

    It is exact, for an integer and for a tensor. The factor has three decimals.
    """
    whole = 1000 * n
    share = min(round(1000 * factor) * chosen, whole)
    if not hasattr(count, "dtype"):
        return max(1, -(-count * share // whole))
    # Float32 is some integers off at most. Both products may overflow in int32, but
    # not their difference.
    count = ops.cast(count, "int")
    near = ops.cast(ops.cast(count, "float32") * (share / whole), "int")
    excess = near * whole - count * share
    return ops.maximum(near - excess // whole, 1)


def rows_per_copy(experts: Any, inputs: Tensor, device: str | None = None) -> float:
    """Count the examples that take as long as a copy of an expert, on a device."""
    if device is None and keras.backend.backend() == "torch":
        device = "torch" if experts.compute_dtype == "float32" else "gpu"
    middle = [size for size in inputs.shape[1:-1] if isinstance(size, int)]
    return ROWS_PER_COPY[device or "gpu"] / math.prod(middle)


def blocks_for(count: Any, n: int, chosen: int, rows: float) -> tuple[Any, Any]:
    r"""Compute the best size of blocks, and how many are enough for every load.

    Of $m$ choices by $n$ experts, $m / s + n$ blocks of a size $s$ hold every load.
    With a copy for each, which takes as long as $r$ rows, the best size is
    $\sqrt{r m / n}$.
    """
    total = count * chosen
    if isinstance(count, int):
        size = max(1, min(count, round(math.sqrt(total * rows / n))))
        # Each expert that is chosen may need a block that has one example.
        return size, max(1, (total + min(n, total) * (size - 1)) // size)
    count, total = ops.cast(count, "int"), ops.cast(total, "int")
    size = ops.sqrt(ops.cast(total, "float32") * (rows / n))
    size = ops.maximum(ops.minimum(ops.cast(ops.round(size), "int"), count), 1)
    number = (total + ops.minimum(total, n) * (size - 1)) // size
    return size, ops.maximum(number, 1)


def saved_rows(experts: Any, inputs: Tensor, chosen: int) -> Any:
    """Count the rows that blocks save an expert's kernels, less those of copies."""
    batch, n, rows = (
        _num_rows(inputs),
        experts.num_experts,
        rows_per_copy(experts, inputs),
    )
    sizes = batch, *blocks_for(batch, n, chosen, rows), *ops.shape(inputs)[1:-1]
    batch, size, number, *middle = (
        ops.cast(each, "float32") if hasattr(each, "dtype") else each for each in sizes
    )
    return math.prod(middle) * (n * batch - number * (size + rows))


class Choices(NamedTuple):
    """The experts that each example chose, in their order, `(batch, chosen)`."""

    # Whether there is such a choice.
    made: Tensor
    # The experts, and the numbers of earlier examples that chose them; or 0.
    experts: Tensor
    ranks: Tensor
    # The weights of the experts, `(batch, [num_gates,] chosen)`; or 0.
    weights: Tensor
    # How many examples chose each expert, `(n,)`.
    loads: Tensor
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
    weights = ops.convert_to_tensor(weights)  # (b, [g,] n)
    n, used = weights.shape[-1], weights != 0
    if len(weights.shape) == 3:
        used = ops.any(used, axis=1)
    # On TensorFlow, "int" is int64. It computes with int32 on the host. JAX finds the
    # largest floats sooner than integers.
    used = ops.cast(used, "float32")  # (b, n)
    numbers = ops.sum(used, axis=1, keepdims=True)  # (b, 1)
    # The first expert of an example has the largest number, n; 0 is no expert.
    found, _ = ops.top_k(used * ops.arange(n, 0, -1, dtype="float32"), num_chosen)
    made, found = found > 0, n - ops.cast(found, "int")  # (b, chosen)
    # Sorted by their experts, the choices of each expert stay in the order of examples.
    owners = ops.reshape(found, (-1,))
    loads = sum_segments(ops.ones_like(owners, "float32"), owners, n + 1)
    loads = ops.cast(loads, "int")
    order = ops.arange(_num_rows(owners), dtype="int")
    place = ops.cast(ops.argsort(owners), "int")
    place = ops.scatter_update(order, ops.expand_dims(place, 1), order)
    ranks = place - ops.take(ops.cumsum(loads) - loads, owners, axis=0)
    one = ops.cast(made, "int")
    experts, ranks = found * one, ops.reshape(ranks, ops.shape(found)) * one
    at = experts
    if len(weights.shape) == 3:
        at = ops.repeat(ops.expand_dims(at, 1), weights.shape[1], axis=1)
    weights = ops.take_along_axis(weights, at, axis=-1)  # (b, [g,] chosen)
    all_made = ops.all(numbers <= num_chosen)
    return Choices(made, experts, ranks, weights, loads[:n], all_made).only(made)


class Slots(NamedTuple):
    """The slots of the experts."""

    # The first slot of each expert, `(n,)`.
    begins: Tensor
    # The number of all slots.
    number: Any
    # The expert of each block of slots; `None` if each expert has one block, in order.
    owners: Tensor = None


def even_slots(n: int, size: Any) -> Slots:
    """Give each expert the same number of slots."""
    return Slots(ops.arange(n, dtype="int") * size, n * size)


def block_slots(choices: Choices, size: Any, number: Any) -> Slots:
    """Give each expert as many blocks of a size as it needs (see `blocks_for`)."""
    needed = (choices.loads + (size - 1)) // size
    ends = ops.cumsum(needed)
    blocks = ops.expand_dims(ops.arange(number, dtype="int"), 1)  # (number, 1)
    # Blocks behind those of the last expert are its own too, and stay empty: (number,).
    owners = ops.sum(ops.cast(blocks >= ends[:-1], "int"), axis=1)
    return Slots((ends - needed) * size, number * size, owners)


def slot_table(choices: Choices, slots: Slots) -> tuple[Tensor, Tensor]:
    """Give the choices slots of their experts, in the order of the examples.

    Returns:
        The choice in each slot, `(slots,)`, its index among all choices; and the slot
        of each choice, `(batch, chosen)`. Where there is none, it is -1.
    """
    made, batch, chosen = choices.made, _num_rows(choices.made), choices.made.shape[1]
    places = ops.take(slots.begins, choices.experts, axis=0) + choices.ranks
    one = ops.cast(made, "int")  # Not `where`: torch copies its numbers to the device.
    # Not `scatter`: on torch it is a loop over the rows.
    readers = ops.scatter_update(
        ops.arange(slots.number + 1, dtype="int") * 0 - 1,  # `full` waits on torch.
        # Pairs that are no choice get an extra slot after the last; it is cut off.
        ops.reshape(slots.number + (places - slots.number) * one, (-1, 1)),
        ops.arange(batch * chosen, dtype="int"),
    )[:-1]
    return readers, (places + 1) * one - 1
