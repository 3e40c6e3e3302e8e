"""Clothing and digits in one classification problem."""

import os
from collections.abc import Sequence

import numpy as np

from dselectk_keras.datasets.dataset import Dataset
from research.papers.data import idx_images
from research.papers.data._check_some import check_some
from research.papers.data.mnist import ARTICLES, DIGITS


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
        articles: The classes of Fashion-MNIST, which become the first classes.
        digits: The classes of MNIST, which follow.
        num_train: Number of training images; `None` is all others.
        num_validation: Number of validation images.
        num_test: Number of test images; `None` is all of these classes.
        seed: Non-negative integer; determines the splits.
        data_dir: Folder that holds the folders `fashion_mnist` and `mnist` with the
            official files; `None` downloads them.

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
    train, test, names = [], [], []
    for dataset, argument, chosen, class_names in (
        ("fashion_mnist", "articles", articles, ARTICLES),
        ("mnist", "digits", digits, DIGITS),
    ):
        check_some(argument, chosen, range(10))
        renumber = np.full(10, -1)
        renumber[list(chosen)] = len(names) + np.arange(len(chosen))
        names += [class_names[i] for i in chosen]
        for found, (images, labels) in zip(
            (train, test), idx_images.read_idx_dataset(dataset, data_dir), strict=True
        ):
            numbers = renumber[labels]
            found.append((images[numbers[:, 0] >= 0], numbers[numbers >= 0, None]))
    train, test = (
        [np.concatenate(arrays) for arrays in zip(*found, strict=True)]
        for found in (train, test)
    )
    sizes = (num_train, num_validation, num_test)
    return idx_images.image_dataset(train, test, sizes, seed, {"class": names})
