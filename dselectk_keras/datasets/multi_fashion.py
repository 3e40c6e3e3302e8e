"""Two articles of clothing in one image, and a task for each."""

import os

from dselectk_keras.datasets import _images
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.fashion_mnist import CLASS_NAMES, FILES


def multi_fashion(
    num_train: int = 100_000,
    num_validation: int = 20_000,
    num_test: int = 20_000,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
    num_held_out: int = 10_000,
) -> Dataset:
    """Multi-Fashion: two overlapping articles of clothing, one task for each of them.

    The same as `multi_mnist` with the images of Fashion-MNIST.

    Args:
        num_train: number of training pairs. Defaults to `100_000`.
        num_validation: number of validation pairs. Defaults to `20_000`.
        num_test: number of test pairs. Defaults to `20_000`.
        seed: non-negative integer; determines the data. Defaults to `0`.
        data_dir: folder that holds Fashion-MNIST's official files, or a folder
            `fashion_mnist` with them; `None` downloads them. Defaults to `None`.
        num_held_out: number of the 60,000 training images reserved for validation
            pairs. Defaults to `10_000`.

    Returns:
        A `Dataset` of two tasks, `top_left` and `bottom_right`, with float32 images
        (samples, 36, 36, 1) and int32 labels (samples, 2). Its `info` holds
        `class_names` by task.

    Example:
        >>> data = multi_fashion(num_train=1_000, data_dir="data")  # doctest: +SKIP
        >>> data.num_classes  # doctest: +SKIP
        (10, 10)

    Reference:
        Hazimeh et al., DSelect-k: Differentiable Selection in the Mixture of
        Experts with Applications to Multi-Task Learning, NeurIPS 2021,
        Section 4 (https://arxiv.org/abs/2106.03760).
    """
    return _images.overlay_dataset(
        _images.read_idx_dataset("fashion_mnist", FILES, data_dir),
        (num_train, num_validation, num_test),
        num_held_out,
        seed,
        CLASS_NAMES,
    )
