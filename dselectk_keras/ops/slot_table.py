"""Which examples each expert sees, when it sees only those that chose it."""

from typing import NamedTuple

from keras import ops


class SlotTable(NamedTuple):
    """Slots of experts filled with the examples that chose them.

    Args:
        examples: The example in each slot, integers `(n * slots,)`; 0 in empty ones.
        experts: The experts that each example chose, `(batch, chosen)`; 0 where it
            chose fewer.
        places: Where their outputs are among all slots, `(batch, chosen)`.
        filled: Whether the example has that slot, `(batch, chosen)`.
    """

    examples: object
    experts: object
    places: object
    filled: object


def slot_table(used, num_chosen, num_slots):
    """Give every example a slot of each expert that it chose.

    Slots go to examples in their order in the batch. What finds no slot, because its
    expert has none left or the example has chosen too many, is left out.

    Args:
        used: Boolean tensor `(batch, n)`: whether the example chose the expert.
        num_chosen: How many experts an example may choose.
        num_slots: How many examples an expert may see.

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
    # The how-manyth expert of the example it is, and the how-manyth example to choose
    # the expert. Sorting would give the first as well, at twice the time.
    order = ops.cumsum(counts, axis=1) * counts
    rank = ops.cumsum(counts, axis=0) - 1
    number = ops.arange(1, num_chosen + 1, dtype="int32")
    is_it = ops.expand_dims(order, 1) == ops.reshape(number, (1, -1, 1))
    is_it = ops.cast(is_it, "int32")
    experts = ops.sum(is_it * ops.arange(n, dtype="int32"), axis=2)
    rank = ops.sum(is_it * ops.expand_dims(rank, 1), axis=2)
    filled = number <= ops.sum(counts, axis=1, keepdims=True)
    filled = ops.logical_and(filled, rank < num_slots)
    # Whatever has no slot goes to one beyond the last.
    places = ops.where(filled, experts * num_slots + rank, n * num_slots)
    rows = ops.arange(batch, dtype="int32")
    rows = ops.repeat(ops.expand_dims(rows, 1), num_chosen, axis=1)
    # Not `scatter`: on torch that is a loop over the rows.
    examples = ops.scatter_update(
        ops.zeros((n * num_slots + 1,), dtype="int32"),
        ops.reshape(places, (-1, 1)),
        ops.reshape(rows, (-1,)),
    )[:-1]
    return SlotTable(examples, experts, places, filled)
