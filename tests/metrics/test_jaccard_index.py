"""How far related and unrelated tasks share experts."""

import itertools
import math

import numpy as np
import pytest
from helpers import refusals

from dselectk_keras.metrics import jaccard_index

# The expert sets {0, 1}, {1, 2}, {0, 1, 2}, {3}.
WEIGHTS = np.array(
    [[0.5, 0.5, 0, 0], [0, 0.9, 0.1, 0], [0.2, 0.3, 0.5, 0], [0, 0, 0, 1]]
)


def test_without_groups_all_pairs_of_sets_above_the_tolerance_are_related():
    # 01: 1/3, 02: 2/3, 12: 2/3, all pairs with 3: 0.
    index = jaccard_index(WEIGHTS)
    assert index.related == pytest.approx((1 / 3 + 2 / 3 + 2 / 3) / 6)
    assert math.isnan(index.unrelated)
    # Above 0.15 the second set is {1}: 01: 1/2, 02: 2/3, 12: 1/3.
    index = jaccard_index(WEIGHTS[:3], tolerance=0.15)
    assert index.related == pytest.approx((1 / 2 + 2 / 3 + 1 / 3) / 3)


def test_groups_take_the_pairs_apart_and_may_have_names():
    for groups in ([0, 1, 0, 1], ["cats", "dogs", "cats", "dogs"]):
        related, unrelated = jaccard_index(WEIGHTS, groups)
        assert related == pytest.approx((2 / 3 + 0) / 2)  # 02, 13
        # 01, 03, 12, 23
        assert unrelated == pytest.approx((1 / 3 + 0 + 2 / 3 + 0) / 4)
    # Tasks each of its own group have no related pairs, and one task has none.
    index = jaccard_index(WEIGHTS, groups=range(4))
    assert math.isnan(index.related)
    assert index.unrelated == jaccard_index(WEIGHTS).related
    assert all(math.isnan(value) for value in jaccard_index([[0.5, 0.5]]))


def test_sets_that_are_equal_or_disjoint_or_empty():
    weights = [[0.9, 0.1, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.5, 0.5]]
    assert jaccard_index(weights, groups=[0, 0, 1]) == (1.0, 0.0)
    weights = [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]
    index = jaccard_index(weights, groups=[0, 0, 1], tolerance=0.6)
    assert index == (1.0, 0.0)


def test_agrees_with_sets_counted_one_by_one():
    rng = np.random.default_rng(0)
    weights = np.where(rng.random((12, 8)) < 0.4, rng.random((12, 8)), 0)
    groups = rng.integers(0, 3, 12)
    sets = [set(np.flatnonzero(row)) for row in weights]
    pairs = {True: [], False: []}
    for t, u in itertools.combinations(range(12), 2):
        union = sets[t] | sets[u]
        value = len(sets[t] & sets[u]) / len(union) if union else 1.0
        pairs[bool(groups[t] == groups[u])].append(value)
    index = jaccard_index(weights, groups)
    assert index.related == pytest.approx(np.mean(pairs[True]))
    assert index.unrelated == pytest.approx(np.mean(pairs[False]))


def test_the_order_of_tasks_and_experts_does_not_matter():
    rng = np.random.default_rng(1)
    weights, groups = rng.random((6, 5)) * (rng.random((6, 5)) < 0.5), np.arange(6) % 2
    tasks, experts = rng.permutation(6), rng.permutation(5)
    moved = jaccard_index(weights[tasks][:, experts], groups[tasks])
    assert moved == pytest.approx(jaccard_index(weights, groups))


test_what_does_not_fit_is_refused = refusals(
    (
        jaccard_index,
        r"must have shape \(tasks, experts\)",
        *(np.ones(4), np.ones((2, 3, 4))),
    ),
    (jaccard_index, "one label for each of the 4 tasks", (WEIGHTS, [0, 1])),
)
