"""Every example gets a slot of each expert that it chose, while there are any."""

import math
from fractions import Fraction

import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numbers, numpy
from keras import ops

from dselectk_keras import DenseExperts
from dselectk_keras.gates.dispatch import (
    _num_slots,
    block_slots,
    blocks_for,
    choices_of,
    dispatch,
    even_slots,
    slot_table,
)

USED = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0], [0, 0, 0]], "float32")


def assigned(used, num_chosen, num_slots):
    """The contents of the slots, and the pairs of example and expert that have one."""
    choices = choices_of(used, num_chosen)
    choices = choices.only(ops.logical_and(choices.made, choices.ranks < num_slots))
    return table_of(choices, even_slots(used.shape[1], num_slots))


def table_of(choices, slots):
    """The examples in slots, -1 if there is none, and the example of each pair."""
    readers, places, experts = map(
        numpy, (*slot_table(choices, slots), choices.experts)
    )
    examples, made = readers // experts.shape[1], numpy(choices.made)
    assert (places[~made] == -1).all()
    pairs = zip(*np.nonzero(made), strict=True)
    return examples, {(i, experts[i, c]): examples[places[i, c]] for i, c in pairs}


def test_slots_hold_the_examples_in_their_order():
    examples, found = assigned(USED, num_chosen=2, num_slots=2)
    # Expert 0 sees the examples 0 and 2, expert 1 none, expert 2 the examples 0 and 1.
    assert examples.tolist() == [0, 2, -1, -1, 0, 1]
    assert found == {(0, 0): 0, (2, 0): 2, (0, 2): 0, (1, 2): 1}


@pytest.mark.parametrize(
    ("num_chosen", "num_slots", "wanted"),
    [(2, 1, {(0, 0): 0, (0, 2): 0}), (1, 2, {(0, 0): 0, (2, 0): 2, (1, 2): 1})],
    ids=["too few slots", "too many chosen"],
)
def test_what_finds_no_slot_is_left_out(num_chosen, num_slots, wanted):
    assert assigned(USED, num_chosen, num_slots)[1] == wanted


def test_choices_have_their_weights_and_whether_they_are_all():
    weights = USED[:, None] * numbers((4, 2, 3))
    weights[0, 0, 0] = 0.0  # Only the second gate chose the expert.
    two, one = (choices_of(weights, k) for k in (2, 1))
    wanted = [weights[0][:, [0, 2]], weights[1][:, [2]], weights[2][:, [0]]]
    wanted = [np.pad(w, ((0, 0), (0, 2 - w.shape[1]))) for w in wanted]
    assert_equal(numpy(two.weights)[:3], wanted)
    assert_equal(numpy(two.weights)[3], 0)
    assert [bool(each.all_made) for each in (two, one)] == [True, False]


def test_blocks_are_of_the_experts_that_need_them():
    used = np.eye(3, dtype="float32")[[2, 0, 2, 2, 2]]
    choices = choices_of(used, 1)
    slots = block_slots(choices, 2, 4)
    # Of four blocks expert 0 needs one, expert 1 none and expert 2 two.
    assert_equal(slots.owners, [0, 2, 2, 2])
    examples, found = table_of(choices, slots)
    assert examples.tolist() == [1, -1, 0, 2, 3, 4, -1, -1]
    assert found == {(0, 2): 0, (1, 0): 1, (2, 2): 2, (3, 2): 3, (4, 2): 4}


@pytest.mark.backend_independent
def test_there_are_blocks_for_every_load():
    rng = np.random.default_rng(0)
    for rows in (0.1, 2, 9, 50):
        size, number = blocks_for(11, 5, 2, rows)
        for skew in (0.1, 1, 10):
            used = np.zeros((11, 5), "float32")
            for row, share in zip(used, rng.dirichlet([skew] * 5, 11), strict=True):
                row[np.argsort(-share)[: rng.integers(3)]] = 1
            choices = choices_of(used, 2)
            slots = block_slots(choices, size, number)
            _, found = table_of(choices, slots)
            assert {*found} == {*map(tuple, np.argwhere(used).tolist())}
            assert all(example == row for (row, _), example in found.items())
            _, places = map(numpy, slot_table(choices, slots))
            owners = numpy(slots.owners)[places // size]
            made = numpy(choices.made)
            assert_equal(owners[made], numpy(choices.experts)[made])


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("count", "n", "chosen", "rows", "wanted"),
    [
        # An even share is 128, and the root of 128 * 444 is 238.4.
        (1024, 64, 8, 444, (238, (8192 + 64 * 237) // 238)),
        (1024, 64, 8, 67, (93, (8192 + 64 * 92) // 93)),
        (5, 2, 1, 1.6, (2, 3)),  # Loads of 3 and 2 need three blocks.
        (3, 2, 1, 99, (3, 2)),  # An expert has three examples at most.
        (1, 64, 2, 444, (1, 2)),
        (2, 64, 1, 444, (2, 2)),  # Both experts may have one.
        (0, 4, 2, 444, (1, 1)),
    ],
)
def test_the_best_blocks(count, n, chosen, rows, wanted):
    assert blocks_for(count, n, chosen, rows) == wanted
    count = ops.convert_to_tensor(count, "int32")
    assert tuple(int(each) for each in blocks_for(count, n, chosen, rows)) == wanted


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("count", "n", "chosen", "factor", "wanted"),
    [
        (100, 11, 1, 1.1, 10),  # In floating point, the quotient is above 10.
        (45, 6, 1, 1.6, 12),
        (9, 3, 1, 4 / 3, 4),
        (0, 4, 1, 1.5, 1),
        (5, 4, 2, 1e9, 5),
        (2**22, 64, 8, 1.25, 655_360),
    ],
)
def test_slots_are_a_multiple_of_an_even_share(count, n, chosen, factor, wanted):
    assert _num_slots(count, n, chosen, factor) == wanted
    count = ops.convert_to_tensor(count, "int32")
    assert int(_num_slots(count, n, chosen, factor)) == wanted


def test_slots_of_tensors_are_exact():
    rng = np.random.default_rng(0)
    counts = np.concatenate([np.arange(500), rng.integers(2**24, size=500)])
    tensor = ops.convert_to_tensor(counts, "int32")
    for n in (1, 2, 5, 6, 7, 64, 1000, 65_536):
        for factor in (1, 1.1, 1.2, 1.25, 1.5, 1.6, 2.718, 4 / 3):
            share = min(1, Fraction(round(1000 * factor), 1000 * n))
            wanted = [max(1, math.ceil(int(count) * share)) for count in counts]
            assert_equal(_num_slots(tensor, n, 1, factor), wanted)


def dispatched(x, weights, capacity, valid=None):
    """Outputs of a bank of four experts for the chosen experts of each example."""
    bank = DenseExperts(4, [2], None)
    bank.build((None, x.shape[1]))
    tensors = map(ops.convert_to_tensor, (x, weights))
    valid = None if valid is None else ops.convert_to_tensor(valid)
    mixed, dropped = dispatch(bank, *tensors, 1, capacity, valid)
    return numpy(bank(x)), numpy(mixed), dropped


@pytest.mark.parametrize("capacity", [None, 1.0])
def test_an_example_without_an_expert_gets_zeros_beside_nan(capacity):
    x, weights = numbers((4, 3)), np.eye(4, dtype="float32")
    # The first example reads the first slot, where the second one is.
    x[1], weights[1], weights[0] = np.nan, weights[0], 0
    outputs, mixed, _ = dispatched(x, weights, capacity)
    assert_equal(mixed[0], [0, 0])
    assert np.isnan(mixed[1]).all()
    assert_close(mixed[2:], [outputs[2, 2], outputs[3, 3]], rtol=1e-5)


def test_an_even_share_of_the_capacity_is_of_the_examples_that_count():
    x, valid = numbers((16, 3)), np.arange(16) % 2 == 0
    weights = np.tile(np.eye(4, dtype="float32")[1], (16, 1)) * valid[:, None]
    # A quarter of eight, where all want the same expert.
    outputs, mixed, dropped = dispatched(x, weights.astype("float32"), 1.0, valid)
    assert_close(mixed[[0, 2]], outputs[[0, 2], 1], rtol=1e-5)
    assert_equal(mixed[[1, *range(3, 16)]], 0)
    assert int(dropped) == 8 - 2
