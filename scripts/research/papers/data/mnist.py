"""MNIST and Fashion-MNIST: 70,000 images of 28 x 28 pixels in ten classes."""

import os

from dselectk_keras.datasets import Dataset
from research.papers.data import idx_images

DIGITS = tuple("0123456789")
ARTICLES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def mnist(
    num_train: int | None = None,
    num_validation: int = 10_000,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """Handwritten digits, a task `digit`.

    Ours: the validation split is held out of the 60,000 training images at random;
    pixels are scaled to [0, 1].

    Args:
        num_train: Number of training images; `None` is all others.
        num_validation: Number of validation images.
        num_test: Number of test images; `None` is all 10,000.
        seed: Non-negative integer; determines the splits.
        data_dir: Folder that holds the official files, or a folder `mnist` with them;
            `None` downloads them.

    Returns:
        A `Dataset` with float32 images (samples, 28, 28, 1) and int32 labels
        (samples, 1). Its `info` holds `class_names` by task.

    Reference:
        LeCun et al., Gradient-Based Learning Applied to Document Recognition,
        Proceedings of the IEEE, 1998 (http://yann.lecun.com/exdb/mnist/).
    """
    pairs = idx_images.read_idx_dataset("mnist", data_dir)
    sizes = (num_train, num_validation, num_test)
    return idx_images.image_dataset(*pairs, sizes, seed, {"digit": DIGITS})


def fashion_mnist(
    num_train: int | None = None,
    num_validation: int = 10_000,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """Articles of clothing, a task `article`, in the form of `mnist`.

    Args:
        num_train: Number of training images; `None` is all others.
        num_validation: Number of validation images.
        num_test: Number of test images; `None` is all 10,000.
        seed: Non-negative integer; determines the splits.
        data_dir: Folder that holds the official files, or a folder `fashion_mnist` with
            them; `None` downloads them.

    Reference:
        Xiao et al., Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
        Learning Algorithms, 2017 (https://arxiv.org/abs/1708.07747).
    """
    pairs = idx_images.read_idx_dataset("fashion_mnist", data_dir)
    sizes = (num_train, num_validation, num_test)
    return idx_images.image_dataset(*pairs, sizes, seed, {"article": ARTICLES})
