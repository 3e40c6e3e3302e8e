"""Parts of a data set have random numbers of their own."""

import pytest

from dselectk_keras import datasets
from dselectk_keras.datasets import sampling


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
