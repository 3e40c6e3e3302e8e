"""Which examples each expert evaluates when examples are dispatched."""

from typing import NamedTuple

from keras import ops

from dselectk_keras.utils import Tensor


class SlotTable(NamedTuple):
    """The slots of the experts, filled with the examples that chose them.

    Args:
        examples: The example in each slot, integers `(n * slots,)`; 0 in empty slots.
        experts: The experts that each example chose, `(batch, chosen)`; 0 where it
            chose fewer.
        places: The slots of these experts' outputs, `(batch, chosen)`.
        filled: Whether the example has that slot, `(batch, chosen)`.
    """

    examples: Tensor
    experts: Tensor
    places: Tensor
    filled: Tensor


def slot_table(
    used: Tensor, num_chosen: int, num_slots: int, limit: Tensor = None
) -> SlotTable:
    """Assign each example to a slot of every expert that it chose.

    Slots are assigned in the order of the batch. An example is dropped where the
    expert's capacity is full, or where it chose more than `num_chosen` experts.

    Args:
        used: Boolean tensor `(batch, n)`: whether the example chose the expert.
        num_chosen: The largest number of experts per example.
        num_slots: The capacity of an expert, in examples.
        limit: How many of the slots may be filled, a tensor; by default, all.

    Returns:
        A `SlotTable`.

    Example:
        >>> used = np.array([[True, False], [True, True], [False, True]])
        >>> table = slot_table(used, num_chosen=2, num_slots=2)
        >>> np.asarray(table.examples).tolist()
        [0, 1, 1, 2]
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
