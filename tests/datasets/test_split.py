"""A split is a pair of inputs and labels."""

import numpy as np

from dselectk_keras.datasets import Split


def test_a_split_unpacks_as_inputs_and_labels():
    x, y = Split(np.ones((3, 2)), np.zeros((3, 1)))
    assert x.shape == (3, 2)
    assert y.shape == (3, 1)


def test_a_split_is_the_tuple_that_keras_takes_as_validation_data():
    assert isinstance(Split(np.ones(3), np.ones(3)), tuple)


def test_num_samples_counts_examples_of_arrays_and_mappings():
    assert Split(np.ones((3, 2)), np.zeros((3, 1))).num_samples == 3
    assert Split({"a": np.ones((5, 2))}, np.zeros((5, 1))).num_samples == 5
