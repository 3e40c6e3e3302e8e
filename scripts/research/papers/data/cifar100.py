"""Small colour photographs in a hundred classes of twenty groups."""

import os
import tarfile

import numpy as np

from dselectk_keras.datasets.dataset import Dataset
from research.papers.data import idx_images, official_files


def cifar100(
    num_train: int | None = None,
    num_validation: int = 5_000,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """CIFAR-100: 60,000 photographs, 32 x 32 pixels, in 100 classes of 20 groups.

    Each of the two labels of an image is a task.

    Ours: the validation split is held out of the 50,000 training images at random;
    pixels are scaled to [0, 1].

    Args:
        num_train: Number of training images; `None` is all others.
        num_validation: Number of validation images.
        num_test: Number of test images; `None` is all 10,000.
        seed: Non-negative integer; determines the splits.
        data_dir: Folder that holds the official archive, or a folder `cifar100` with
            it; `None` downloads it.

    Returns:
        A `Dataset` of two tasks, `coarse` (20 classes) and `fine` (100 classes), with
        float32 images (samples, 32, 32, 3) and int32 labels (samples, 2). Its `info`
        holds `class_names` by task.

    Example:
        >>> data = cifar100(data_dir="data")  # doctest: +SKIP
        >>> data.num_classes  # doctest: +SKIP
        (20, 100)

    Reference:
        Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009
        (https://www.cs.toronto.edu/~kriz/cifar.html).
    """
    (path,) = official_files.fetch_files(
        "cifar100", data_dir, *official_files.FILES["cifar100"]
    )
    with tarfile.open(path) as archive:

        def read(name):
            return archive.extractfile(f"cifar-100-binary/{name}").read()

        train, test = map(_parse_records, (read("train.bin"), read("test.bin")))
        classes = {
            task: read(f"{task}_label_names.txt").decode().split()
            for task in ("coarse", "fine")
        }
    sizes = (num_train, num_validation, num_test)
    return idx_images.image_dataset(train, test, sizes, seed, classes)


def _parse_records(content):
    """Images and labels of records: coarse label, fine label, 3 x 32 x 32 pixels."""
    records = np.frombuffer(content, "uint8").reshape(-1, 2 + 3 * 32 * 32)
    images = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, records[:, :2]
