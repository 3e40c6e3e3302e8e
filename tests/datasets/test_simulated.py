"""Properties of all simulated data sets."""

import functools

import keras
import numpy as np
import pytest

from dselectk_keras import datasets

SIZES = {"num_train": 400, "num_validation": 30, "num_test": 20}
# By name: the function, and the numbers of inputs and tasks.
SIMULATED = {
    "synthetic_moe": (functools.partial(datasets.synthetic_moe, 16), 10, 16),
    "correlated_tasks": (datasets.correlated_tasks, 100, 2),
    "expert_recovery": (datasets.expert_recovery, 10, 1),
    "grouped_tasks": (datasets.grouped_tasks, 30, 64),
    "recommender_sim": (datasets.recommender_sim, 20, 8),
}


def parts(data):
    return data.train, data.validation, data.test


@pytest.fixture(params=SIMULATED)
def name(request):
    return request.param


@pytest.fixture
def make(name):
    return SIMULATED[name][0]


def test_shapes_and_types(name, make):
    for (x, y), size in zip(parts(make(**SIZES)), SIZES.values(), strict=True):
        assert x.shape == (size, SIMULATED[name][1])
        assert y.shape == (size, SIMULATED[name][2])
        assert x.dtype == y.dtype == np.float32


def test_the_seed_decides_everything(make):
    first, again, other = (make(seed=seed, **SIZES) for seed in (3, 3, 4))
    for mine, same, new in zip(*map(parts, (first, again, other)), strict=True):
        np.testing.assert_array_equal(mine.x, same.x)
        np.testing.assert_array_equal(mine.y, same.y)
        assert not np.array_equal(mine.x, new.x)
    same = keras.tree.map_structure(np.array_equal, first.info, again.info)
    assert all(keras.tree.flatten(same))


def test_the_truth_depends_on_the_seed(name, make):
    first, other = (make(seed=seed, **SIZES).info for seed in (3, 4))
    truth = {"correlated_tasks": "w1", "grouped_tasks": "directions"}
    if name != "recommender_sim":  # It does not tell its truth.
        key = truth.get(name, "kernels")
        assert not np.array_equal(first[key], other[key])


def test_splits_share_no_example(make):
    rows = [row for part in parts(make(**SIZES)) for row in part.x]
    assert len(np.unique(rows, axis=0)) == sum(SIZES.values())


def test_a_larger_split_begins_with_the_smaller_and_leaves_others_alone(name, make):
    few, many = make(**SIZES), make(**{**SIZES, "num_train": 900})
    np.testing.assert_array_equal(many.train.x[:400], few.train.x)
    # Products of more rows may be rounded in another way.
    atol = 0 if name in ("expert_recovery", "recommender_sim") else 1e-6
    np.testing.assert_allclose(many.train.y[:400], few.train.y, rtol=0, atol=atol)
    for large, small in zip(parts(many)[1:], parts(few)[1:], strict=True):
        np.testing.assert_array_equal(large.x, small.x)
        np.testing.assert_array_equal(large.y, small.y)


@pytest.mark.parametrize("size", SIZES)
def test_splits_hold_at_least_one_sample(make, size):
    for value in (0, -1, 2.5, True, None, "4"):
        with pytest.raises(ValueError, match=rf"`{size}` must be a positive integer"):
            make(**{size: value})


def test_the_seed_is_a_non_negative_integer(make):
    for seed in (-1, 0.5, None):
        with pytest.raises(ValueError, match=r"`seed` must be an integer >= 0"):
            make(seed=seed, **SIZES)
