"""Data sets are found by their name."""

import inspect

import numpy as np
import pytest

from dselectk_keras import datasets


def test_load_calls_the_function_of_that_name_with_the_options():
    options = {"num_train": 20, "num_validation": 5, "num_test": 5, "seed": 7}
    loaded = datasets.load("synthetic_moe", num_tasks=16, **options)
    direct = datasets.synthetic_moe(num_tasks=16, **options)
    np.testing.assert_array_equal(loaded.train.y, direct.train.y)
    assert datasets.load("expert_recovery", **options).num_tasks == 1


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(
        ValueError,
        match=r"`name` must be one of 'correlated_tasks', .*. Received: name='mnist2'",
    ):
        datasets.load("mnist2")


@pytest.mark.parametrize("name", datasets.NAMES)
def test_all_data_sets_have_one_signature(name):
    arguments = inspect.signature(getattr(datasets, name)).parameters
    assert {"num_train", "num_validation", "num_test", "seed"} <= set(arguments)
    assert arguments["seed"].default == 0
    if "data_dir" in arguments:
        assert arguments["data_dir"].default is None
