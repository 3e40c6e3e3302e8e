"""Experts that fit labels best: against regressions by hand, and in edge cases."""

import itertools
from functools import partial

import numpy as np
from checks import assert_equal
from helpers import refusals

from dselectk_keras.ops import choose_by_fit


def explained(units, labels, ridge=0.0):
    """The variance of labels that a ridge regression explains."""
    x = units.reshape(len(units), -1)
    x, y = x - x.mean(0), labels - labels.mean(0)
    gram = x.T @ x / len(x) + ridge * np.eye(x.shape[1])
    b = x.T @ y / len(x)
    return np.sum(b * np.linalg.solve(gram, b))


def drawn(samples=60, n=5, units=2, tasks=3, seed=0):
    rng = np.random.default_rng(seed)
    # Experts are correlated, so that the second choice depends on the first one.
    base = rng.normal(size=(samples, 1, units))
    outputs = base + rng.normal(size=(samples, n, units))
    return outputs, rng.normal(size=(samples, tasks))


def test_each_expert_explains_most_beside_those_chosen_before():
    units, labels = drawn()
    chosen = choose_by_fit(units, labels, k=3, ridge=0.0)
    for task, own in enumerate(chosen):
        for place in range(3):
            gains = [
                explained(units[:, [*own[:place], expert]], labels[:, [task]])
                if expert not in own[:place]
                else -1.0
                for expert in range(5)
            ]
            assert own[place] == np.argmax(gains)


def test_two_experts_are_found_that_the_labels_were_made_of():
    units, _ = drawn(seed=1)
    pairs = [*itertools.combinations(range(5), 2)]
    labels = np.stack([units[:, a, 0] - units[:, b, 1] for a, b in pairs], axis=1)
    found = choose_by_fit(units, labels, k=2)
    assert [tuple(sorted(own)) for own in found.tolist()] == pairs


def test_the_ridge_is_a_multiple_of_the_mean_variance():
    # With one unit each: b^2 / (v + r mean(v)), with v = (4, 1) and b = (1.2, 0.8).
    x = np.array([[2.0, 1.0], [-2.0, 1.0], [2.0, -1.0], [-2.0, -1.0]])[:, :, None]
    labels = (0.6 * x[:, 0] / 2 + 0.8 * x[:, 1]).reshape(-1, 1)
    # 1.44 / (4 + 2.5 r) against 0.64 / (1 + 2.5 r).
    assert choose_by_fit(x, labels, 1, ridge=0.01).tolist() == [[1]]
    assert choose_by_fit(x, labels, 1, ridge=10.0).tolist() == [[0]]


def test_missing_labels_and_weights_of_zero_count_as_absent():
    units, labels = drawn()
    some = np.arange(60) % 3 > 0
    gone = np.where(some[:, None], labels, np.nan)
    wanted = choose_by_fit(units[some], labels[some], k=2)
    assert_equal(choose_by_fit(units, gone, k=2), wanted)
    weights = np.repeat(some[:, None], 3, axis=1)
    assert_equal(choose_by_fit(units, 1e3 * labels, k=2, weights=weights), wanted)


def test_a_weight_of_two_counts_as_two_examples():
    units, labels = drawn()
    twice = np.arange(60) < 20
    weights = np.repeat(1.0 + twice[:, None], 3, axis=1)
    rows = np.r_[np.arange(60), np.arange(20)]
    found = choose_by_fit(units, labels, k=3, weights=weights)
    assert_equal(found, choose_by_fit(units[rows], labels[rows], k=3))


def test_columns_of_a_task_are_explained_together():
    units, _ = drawn(seed=2)
    # Expert 1 explains most of the column that varies, and 3 all of the other one.
    labels = np.stack([10 * units[:, 1, 0], units[:, 3, 0], units[:, 4, 1]], axis=1)
    assert choose_by_fit(units, labels, 1, tasks=[0, 0, 1]).tolist() == [[1], [4]]
    assert sorted(choose_by_fit(units, labels, 3, tasks=[0, 0, 0])[0]) == [1, 3, 4]


def test_experts_that_a_task_has_anyway_come_last_and_count():
    units, labels = drawn()
    found = choose_by_fit(units, labels, k=2, always=1, ridge=0.0)
    assert (found[:, 1] == 4).all()
    for task, (own, last) in enumerate(found):
        gains = [explained(units[:, [e, last]], labels[:, [task]]) for e in range(4)]
        assert own == np.argmax(gains)


def test_constant_labels_dead_experts_and_no_labels_give_some_experts():
    units, labels = drawn()
    units[:, 2] = 0.0
    labels[:, 0], labels[:, 1] = 1.0, np.nan
    found = choose_by_fit(units, labels, k=3, ridge=0.0)
    assert all(len({*own}) == 3 for own in found.tolist())
    assert 2 not in found[2]
    assert all(len({*own}) == 3 for own in choose_by_fit(0 * units, labels, 3).tolist())


def test_images_of_experts_are_flattened():
    units, labels = drawn(units=4)
    found = choose_by_fit(units.reshape(60, 5, 2, 2), labels, 2)
    assert_equal(found, choose_by_fit(units, labels, 2))


FIT = partial(choose_by_fit, *drawn())
test_wrong_settings_are_refused = refusals(
    (FIT, "`k` must be at most 5", 6),
    (FIT, "`k` must be a positive integer", 0),
    (FIT, "`k` must be an integer >= 3", {"k": 2, "always": 2}),
    (FIT, "`ridge` must be a finite number at least 0", {"k": 2, "ridge": -1.0}),
)
