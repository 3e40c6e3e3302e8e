"""Clothing and digits in one classification problem."""

import os
from collections.abc import Sequence

import numpy as np

from dselectk_keras.datasets import _images, _sampling
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.fashion_mnist import CLASS_NAMES as ARTICLES
from dselectk_keras.datasets.fashion_mnist import FILES as FASHION_MNIST_FILES
from dselectk_keras.datasets.mnist import CLASS_NAMES as DIGITS
from dselectk_keras.datasets.mnist import FILES as MNIST_FILES


def fmnist_mnist(
    articles: Sequence[int] = (0, 1, 2, 3, 4, 5),
    digits: Sequence[int] = (4, 5, 6, 7, 8, 9),
    num_train: int | None = None,
    num_validation: int = 12_000,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """Six classes of Fashion-MNIST and six of MNIST, as one problem of twelve.

    The task has two kinds of images, which a gate should send to different experts.

    From the paper: the first six classes of clothing and the last six digits. Ours:
    the validation split, held out of the training images at random; pixels scaled to
    [0, 1].

    Args:
        articles: the classes of Fashion-MNIST, which become the first classes.
            Defaults to `(0, 1, 2, 3, 4, 5)`.
        digits: the classes of MNIST, which follow. Defaults to `(4, 5, 6, 7, 8, 9)`.
        num_train: number of training images; `None` is all others. Defaults to `None`.
        num_validation: number of validation images. Defaults to `12_000`.
        num_test: number of test images; `None` is all of these classes.
            Defaults to `None`.
        seed: non-negative integer; determines the splits. Defaults to `0`.
        data_dir: folder that holds the folders `fashion_mnist` and `mnist` with the
            official files; `None` downloads them. Defaults to `None`.

    Returns:
        A `Dataset` of one task, `class`, with float32 images (samples, 28, 28, 1) and
        int32 labels (samples, 1). Its `info` holds `class_names` by task.

    Example:
        >>> data = fmnist_mnist(data_dir="data")  # doctest: +SKIP
        >>> data.num_classes  # doctest: +SKIP
        (12,)

    Reference:
        Krishnamurthy et al., Improving Expert Specialization in Mixture of Experts,
        2023 (https://arxiv.org/abs/2302.14703), Section 4.1 and Appendix B.2.
    """
    sources = (
        ("fashion_mnist", FASHION_MNIST_FILES, "articles", articles),
        ("mnist", MNIST_FILES, "digits", digits),
    )
    parts, first = [], 0
    for dataset, files, argument, chosen in sources:
        _sampling.check_some(argument, chosen, range(10))
        raw = _images.read_idx_dataset(dataset, files, data_dir)
        parts.append(_select_classes(raw, chosen, first))
        first += len(chosen)
    raw = [np.concatenate(pair) for pair in zip(*parts, strict=True)]
    names = [ARTICLES[i] for i in articles] + [DIGITS[i] for i in digits]
    sizes = (num_train, num_validation, num_test)
    return _images.idx_dataset(raw, sizes, seed, {"class": names})


def _select_classes(raw, chosen, first):
    """The images and labels of the chosen classes, renumbered from `first`."""
    renumber = np.full(10, -1)
    renumber[list(chosen)] = first + np.arange(len(chosen))
    found = []
    for images, labels in (raw[:2], raw[2:]):
        numbers = renumber[labels]
        found += [images[numbers >= 0], numbers[numbers >= 0]]
    return found
