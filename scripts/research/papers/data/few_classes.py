"""Images of few classes, with pixels of mean 0 and variance 1."""

import dataclasses
import functools

import numpy as np

from dselectk_keras.datasets import Split
from research.papers.data import load
from research.papers.data.changes import changed, only_tasks


@functools.lru_cache(maxsize=4)
def few_classes(name, num_train, num_test, data_dir=None):
    """A data set of one task, without validation images.

    The classes of CIFAR-100 are the fine ones, those of Multi-MNIST pairs of digits.
    """
    # A loader holds out one image at least: here it is put back.
    sizes = {"num_train": num_train - 1, "num_validation": 1, "num_test": num_test}
    data = load(name, data_dir=data_dir, **sizes)
    pairs = zip(data.train, data.validation, strict=True)
    data = dataclasses.replace(data, train=Split(*map(np.concatenate, pairs)))
    if name == "cifar100":
        data = only_tasks(data, {"fine": "fine"})
    if name == "multi_mnist":
        data = _pairs(data)
    return standardized(data)


def standardized(data):
    """A data set whose training images have mean 0 and variance 1."""
    mean, spread = data.train.x.mean(), data.train.x.std()
    return changed(data, lambda split: split._replace(x=(split.x - mean) / spread))


def _pairs(data):
    """Multi-MNIST at half its width and height, with pairs of digits as classes."""

    def halved(split):
        count, height, width, _ = split.x.shape
        pixels = split.x.reshape(count, height // 2, 2, width // 2, 2, 1)
        return Split(pixels.mean(axis=(2, 4)), 10 * split.y[:, :1] + split.y[:, 1:])

    fields = {"task_names": ("pair",), "task_kinds": data.task_kinds[:1]}
    return changed(data, halved, num_classes=(100,), **fields)
