"""Clothing and digits are told apart by their classes."""

import numpy as np

from research.papers.data import fmnist_mnist


def test_twelve_classes_of_two_sources(idx_dir):
    data = fmnist_mnist(num_validation=40, data_dir=idx_dir)
    assert data.num_classes == (12,)
    sizes = {"train": 200, "validation": 40, "test": 60}
    for name, size in sizes.items():
        x, y = getattr(data, name)
        assert x.shape == (size, 28, 28, 1)
        source = np.round(x[:, 0, 0, 0] * 255)
        original = (np.round(x[:, 27, 27, 0] * 255) - 1) % 10
        labels = y[:, 0]
        np.testing.assert_array_equal(source, np.where(labels < 6, 2, 1))
        # Clothing from 0 on, digits from 4 on.
        expected = np.where(labels < 6, labels, labels - 2)
        np.testing.assert_array_equal(original, expected)
    names = data.info["class_names"]["class"]
    assert names[:2] == ("T-shirt/top", "Trouser")
    assert names[6:] == tuple("456789")


def test_classes_can_be_chosen(idx_dir):
    data = fmnist_mnist((9,), (3, 1), num_validation=10, data_dir=idx_dir)
    assert data.info["class_names"]["class"] == ("Ankle boot", "3", "1")
    x, y = data.test
    original = (np.round(x[:, 27, 27, 0] * 255) - 1) % 10
    np.testing.assert_array_equal(original, np.array([9, 3, 1])[y[:, 0]])
