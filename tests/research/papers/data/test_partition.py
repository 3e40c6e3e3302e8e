"""Splits are disjoint, and take what is asked for."""

import numpy as np
from helpers import refusals

from research.papers.data import partition as module


def partition(num_samples=10, seed=0, **sizes):
    return module.partition(np.random.default_rng(seed), num_samples, **sizes)


def test_parts_are_disjoint_and_none_takes_the_rest():
    first, rest, last = partition(a=2, b=None, c=3)
    assert (len(first), len(rest), len(last)) == (2, 5, 3)
    assert sorted([*first, *rest, *last]) == list(range(10))
    (only,) = partition(a=4)
    assert len(set(only)) == 4


test_sizes_that_cannot_be_are_refused = refusals(
    *(
        (
            lambda sizes=sizes: partition(**sizes),
            "There are 10 examples to split. .*a=.*fewer",
        )
        for sizes in [{"a": 11}, {"a": 5, "b": 6}, {"a": 10, "b": None}]
    ),
    *(
        (lambda size=size: partition(a=size), "`a` must be a positive integer")
        for size in [0, -1, 1.5, True]
    ),
)
