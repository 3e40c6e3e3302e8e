"""The papers' data sets are found by name, beside those of the package."""

import inspect

import numpy as np
import pytest

from dselectk_keras import datasets
from papers import data


def test_load_calls_the_function_of_that_name_with_the_options(idx_dir):
    options = {"num_train": 20, "num_validation": 5, "num_test": 5, "seed": 7}
    for name, direct in (
        ("mnist", datasets.mnist),
        ("fmnist_mnist", data.fmnist_mnist),
    ):
        loaded = data.load(name, data_dir=idx_dir, **options)
        expected = direct(data_dir=idx_dir, **options)
        np.testing.assert_array_equal(loaded.train.x, expected.train.x)
    with pytest.raises(ValueError, match="Received: name='mnist2'"):
        data.load("mnist2")


@pytest.mark.parametrize("name", data.OWN)
def test_all_data_sets_have_the_signature_of_the_packages(name):
    assert name not in datasets.NAMES
    arguments = inspect.signature(data.OWN[name]).parameters
    assert {"num_train", "num_validation", "num_test", "seed"} <= set(arguments)
    assert arguments["seed"].default == 0
    assert arguments["data_dir"].default is None
