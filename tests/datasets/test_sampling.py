"""Splits are disjoint, and take what is asked for."""

import numpy as np
import pytest
from helpers import refusals

from dselectk_keras import datasets
from dselectk_keras.datasets import sampling


def partition(num_samples=10, seed=0, **sizes):
    return sampling.partition(np.random.default_rng(seed), num_samples, **sizes)


def test_parts_are_disjoint_and_none_takes_the_rest():
    first, rest, last = partition(a=2, b=None, c=3)
    assert (len(first), len(rest), len(last)) == (2, 5, 3)
    assert sorted([*first, *rest, *last]) == list(range(10))
    (only,) = partition(a=4)
    assert len(set(only)) == 4


@pytest.mark.parametrize(
    "name", ["correlated_tasks", "grouped_tasks", "recommender_sim", "synthetic_moe"]
)
def test_no_two_parts_of_a_data_set_have_the_same_random_numbers(name, monkeypatch):
    paths, make = [], sampling.random_stream

    def record(seed, *path):
        paths.append(path)
        return make(seed, *path)

    monkeypatch.setattr(sampling, "random_stream", record)
    datasets.load(name, num_train=20, num_validation=10, num_test=10)
    assert len(set(paths)) == len(paths) > 3


test_sizes_that_cannot_be_are_refused = refusals(
    (
        partition,
        "There are 10 examples to split. .*a=.*fewer",
        *({"a": 11}, {"a": 5, "b": 6}, {"a": 10, "b": None}),
    ),
    (partition, "`a` must be a positive integer", {"a": 0}, {"a": 1.5}),
)
