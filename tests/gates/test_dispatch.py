"""Every example gets a slot of each expert that it chose, while there are any."""

import numpy as np
import pytest
from helpers import numpy

from dselectk_keras.gates._dispatch import slot_table

USED = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0], [0, 0, 0]], bool)


def filled(table):
    """The pairs of example and expert that have a slot, and what is in the slots."""
    examples, experts, places, mask = (
        numpy(each) for each in (table.examples, table.experts, table.places, table[3])
    )
    rows, columns = np.nonzero(mask)
    at = places[rows, columns]
    return {
        (int(row), int(experts[row, column])): int(examples[place])
        for row, column, place in zip(rows, columns, at, strict=True)
    }


def test_slots_hold_the_examples_in_their_order():
    table = slot_table(USED, num_chosen=2, num_slots=2)
    # Expert 0 sees the examples 0 and 2, expert 1 none, expert 2 the examples 0 and 1.
    assert numpy(table.examples).tolist() == [0, 2, 0, 0, 0, 1]
    assert filled(table) == {(0, 0): 0, (2, 0): 2, (0, 2): 0, (1, 2): 1}


@pytest.mark.parametrize(
    ("num_chosen", "num_slots", "found"),
    [
        (2, 1, {(0, 0): 0, (0, 2): 0}),
        (1, 2, {(0, 0): 0, (2, 0): 2, (1, 2): 1}),
    ],
    ids=["too few slots", "too many chosen"],
)
def test_what_finds_no_slot_is_left_out(num_chosen, num_slots, found):
    assert filled(slot_table(USED, num_chosen, num_slots)) == found


def test_any_table_is_consistent():
    rng = np.random.default_rng(0)
    for _ in range(3):
        used = rng.random((9, 5)) < 0.4
        table = slot_table(used, num_chosen=5, num_slots=9)
        found = filled(table)
        assert set(found) == {tuple(pair) for pair in np.argwhere(used).tolist()}
        assert all(example == row for (row, _), example in found.items())
