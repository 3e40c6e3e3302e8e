"""Two digits or articles of clothing in one image, and a task for each."""

import os

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.utils import check_choice
from research.papers.data import idx_images
from research.papers.data.mnist import ARTICLES, DIGITS
from research.papers.data.partition import split_indices

_CLASS_NAMES = {"mnist": DIGITS, "fashion_mnist": ARTICLES}
_SHIFT = 8  # Each image moves by 4 pixels, to opposite corners.


def multi_mnist(
    num_train: int = 100_000,
    num_validation: int = 20_000,
    num_test: int = 20_000,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
    num_held_out: int = 10_000,
    images: str = "mnist",
) -> Dataset:
    """Multi-MNIST: two overlapping digits, one task for each of them.

    With `images="fashion_mnist"` it is Multi-Fashion: two articles of clothing.

    From the paper: two images of MNIST, uniformly sampled, are overlaid; one is
    shifted by 4 pixels in each direction towards the top left corner and one towards
    the bottom right, which makes 36 x 36 pixels; task 1 is the digit in the top left,
    task 2 the one in the bottom right; the sizes of the splits.

    Ours: images are combined by the maximum of their pixels; the two images of a pair
    differ; validation pairs use training images that no training pair uses, and test
    pairs use MNIST's test images, so no image is in two splits; pixels are scaled to
    [0, 1]; the seed.

    Args:
        num_train: Number of training pairs.
        num_validation: Number of validation pairs.
        num_test: Number of test pairs.
        seed: Non-negative integer; determines the data.
        data_dir: Folder that holds the official files of the images, or a folder
            `mnist` or `fashion_mnist` with them; `None` downloads them.
        num_held_out: Number of the 60,000 training images reserved for validation
            pairs.
        images: `"mnist"` or `"fashion_mnist"`.

    Returns:
        A `Dataset` of two tasks, `top_left` and `bottom_right`, with float32 images
        (samples, 36, 36, 1) and int32 labels (samples, 2). Its `info` holds
        `class_names` by task.

    Example:
        >>> data = multi_mnist(num_train=1_000, data_dir="data")  # doctest: +SKIP
        >>> data.train.x.shape, data.train.y.shape  # doctest: +SKIP
        ((1000, 36, 36, 1), (1000, 2))

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 4.2.
    """
    check_choice("images", images, tuple(_CLASS_NAMES))
    sizes = sampling.check_sizes(num_train, num_validation, num_test)
    train, test = idx_images.read_idx_dataset(images, data_dir)
    # Images are split before they are paired, so that splits share no image.
    pools = split_indices(seed, len(train[0]), len(test[0]), (None, num_held_out, None))
    splits = []
    for stream, (pixels, labels) in enumerate((train, train, test)):
        pool, size = pools[stream], sizes[stream]
        rng = sampling.random_stream(seed, 1, stream)
        first = rng.integers(len(pool), size=size)
        other = rng.integers(len(pool) - 1, size=size)
        pair = pool[first], pool[other + (other >= first)]
        x = overlay_images(*(pixels[indices] for indices in pair))
        splits.append((x, np.hstack([labels[indices] for indices in pair])))
    classes = dict.fromkeys(("top_left", "bottom_right"), _CLASS_NAMES[images])
    return idx_images.multiclass_dataset(splits, classes)


def overlay_images(first, second):
    """The maximum of an image in the top left and one in the bottom right corner."""
    num_images, height, width = first.shape
    canvas = np.zeros((num_images, height + _SHIFT, width + _SHIFT), first.dtype)
    canvas[:, :height, :width] = first
    corner = canvas[:, _SHIFT:, _SHIFT:]
    np.maximum(corner, second, out=corner)
    return canvas
