"""The papers' data sets are found by name, beside those of the package."""

import inspect
from typing import Any

import numpy as np
import pytest

from dselectk_keras import datasets
from research.papers import data

# A data set, an argument, a value, and what it must be.
REFUSED = [
    ("census_income", "group", 3, "be one of 1, 2"),
    ("domainnet", "domains", ("photo",), "hold some of 'clipart', .*twice"),
    ("fmnist_mnist", "digits", (), "hold some of 0, 1, .*twice"),
    ("fmnist_mnist", "digits", (1, 1), "hold some of 0, 1, .*twice"),
    ("fmnist_mnist", "digits", (10,), "hold some of 0, 1, .*twice"),
    ("movielens", "version", "25m", "be one of '100k', 'latest-small', '1m'"),
    ("multi_mnist", "num_validation", 0, "be a positive integer"),
]
MISSING = [
    ("cifar100", {}, r"cifar-100-binary.tar.gz \(168,513,733 bytes"),
    ("domainnet", {}, r"clipart_train.txt \(33,525 lines of"),
    ("movielens", {"version": "100k"}, r"zip \(4,924,029 bytes, SHA-256 50d2.*groupl"),
]


def test_load_calls_the_function_of_that_name_with_the_options(idx_dir):
    options: Any = {"num_train": 20, "num_validation": 5, "num_test": 5, "seed": 7}
    for function in (data.mnist, data.fmnist_mnist):
        loaded = data.load(function.__name__, data_dir=idx_dir, **options)
        expected = function(data_dir=idx_dir, **options)
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


@pytest.mark.parametrize(("name", "argument", "value", "text"), REFUSED)
def test_what_is_unknown_is_refused(idx_dir, name, argument, value, text):
    with pytest.raises(ValueError, match=f"`{argument}` must {text}"):
        data.load(name, data_dir=idx_dir, **{argument: value})


@pytest.mark.parametrize(
    ("name", "site"), [("census_income", "uci.edu"), ("domainnet", "ai.bu.edu")]
)
def test_a_data_set_that_is_not_downloaded_needs_a_folder(name, site):
    with pytest.raises(ValueError, match=rf"`{name}` needs `data_dir`.*{site}"):
        data.load(name)


@pytest.mark.parametrize(("name", "options", "text"), MISSING)
def test_without_a_file_the_error_says_where_to_get_it(tmp_path, name, options, text):
    with pytest.raises(FileNotFoundError, match=text):
        data.load(name, data_dir=tmp_path, **options)
