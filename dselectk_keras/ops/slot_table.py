"""Which examples each expert sees, when it sees only those that chose it."""

from typing import NamedTuple

from keras import ops


class SlotTable(NamedTuple):
    """Slots of experts filled with the examples that chose them.

    Args:
        examples: The example in each slot, integers `(n * slots,)`; 0 in empty ones.
        experts: The experts that each example chose, `(batch, chosen)`, filled up
            with others.
        places: Where their outputs are among all slots, `(batch, chosen)`.
        filled: Whether the example has that slot, `(batch, chosen)`.
        fits: Whether every choice has got a slot, a boolean scalar.
    """

    examples: object
    experts: object
    places: object
    filled: object
    fits: object


def slot_table(used, num_chosen, num_slots):
    """Give every example a slot of each expert that it chose.

    Slots go to examples in their order in the batch. What finds no slot, because its
    expert has none left or the example has chosen too many, is left out: `fits` tells.

    Args:
        used: Boolean tensor `(batch, n)`: whether the example chose the expert.
        num_chosen: How many experts an example may choose.
        num_slots: How many examples an expert may see.

    Returns:
        A `SlotTable`.

    Example:
        >>> used = np.array([[True, False], [True, True], [False, True]])
        >>> table = slot_table(used, num_chosen=2, num_slots=2)
        >>> np.asarray(table.examples).tolist(), bool(table.fits)
        ([0, 1, 1, 2], True)
    """
    used = ops.convert_to_tensor(used)
    batch, n = ops.shape(used)[0], used.shape[1]
    counts = ops.cast(used, "int32")
    # The how-manyth to choose the expert an example is.
    rank = ops.cumsum(counts, axis=0) - 1
    # Stable: the chosen experts first, in their order.
    experts = ops.argsort(1 - counts, axis=1)[:, :num_chosen]
    experts = ops.cast(experts, "int32")
    rank = ops.take_along_axis(rank, experts, axis=1)
    filled = ops.logical_and(
        ops.take_along_axis(used, experts, axis=1), rank < num_slots
    )
    # Whatever has no slot goes to one beyond the last.
    places = ops.where(filled, experts * num_slots + rank, n * num_slots)
    rows = ops.arange(batch, dtype="int32")
    rows = ops.repeat(ops.expand_dims(rows, 1), num_chosen, axis=1)
    examples = ops.scatter(
        ops.reshape(places, (-1, 1)), ops.reshape(rows, (-1,)), (n * num_slots + 1,)
    )[:-1]
    fits = ops.logical_and(
        ops.max(ops.sum(counts, axis=0)) <= num_slots,
        ops.max(ops.sum(counts, axis=1)) <= num_chosen,
    )
    return SlotTable(examples, experts, places, filled, fits)
