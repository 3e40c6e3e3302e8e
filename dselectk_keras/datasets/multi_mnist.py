"""Two digits in one image, and a task for each."""

import os

from dselectk_keras.datasets import _images
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.mnist import CLASS_NAMES, FILES


def multi_mnist(
    num_train: int = 100_000,
    num_validation: int = 20_000,
    num_test: int = 20_000,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
    num_held_out: int = 10_000,
) -> Dataset:
    """Multi-MNIST: two overlapping digits, one task for each of them.

    From the paper: two images of MNIST, uniformly sampled, are overlaid; one is
    shifted by 4 pixels in each direction towards the top left corner and one towards
    the bottom right, which makes 36 x 36 pixels; task 1 is the digit in the top left,
    task 2 the one in the bottom right; the sizes of the splits.

    Ours: images are combined by the maximum of their pixels; the two images of a pair
    differ; validation pairs use training images that no training pair uses, and test
    pairs use MNIST's test images, so no image is in two splits; pixels are scaled to
    [0, 1]; the seed.

    Args:
        num_train: number of training pairs. Defaults to `100_000`.
        num_validation: number of validation pairs. Defaults to `20_000`.
        num_test: number of test pairs. Defaults to `20_000`.
        seed: non-negative integer; determines the data. Defaults to `0`.
        data_dir: folder that holds MNIST's official files, or a folder `mnist` with
            them; `None` downloads them. Defaults to `None`.
        num_held_out: number of the 60,000 training images reserved for validation
            pairs. Defaults to `10_000`.

    Returns:
        A `Dataset` of two tasks, `top_left` and `bottom_right`, with float32 images
        (samples, 36, 36, 1) and int32 labels (samples, 2). Its `info` holds
        `class_names` by task.

    Example:
        >>> data = multi_mnist(num_train=1_000, data_dir="data")  # doctest: +SKIP
        >>> data.train.x.shape, data.train.y.shape  # doctest: +SKIP
        ((1000, 36, 36, 1), (1000, 2))

    Reference:
        Hazimeh et al., DSelect-k: Differentiable Selection in the Mixture of
        Experts with Applications to Multi-Task Learning, NeurIPS 2021,
        Section 4 (https://arxiv.org/abs/2106.03760).
    """
    return _images.overlay_dataset(
        _images.read_idx_dataset("mnist", FILES, data_dir),
        (num_train, num_validation, num_test),
        num_held_out,
        seed,
        CLASS_NAMES,
    )
