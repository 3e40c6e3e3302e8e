"""Helpers of the image data sets: the idx format and splits."""

import gzip
import struct

import numpy as np

from dselectk_keras.datasets.dataset import Dataset, Split
from research.papers.data import official_files
from research.papers.data.partition import split_indices

_IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def read_idx_dataset(dataset, data_dir):
    """Pairs of images and labels (samples, 1), as bytes, for training and for test."""
    arrays = [
        *map(_read_idx, official_files.fetch_files(dataset, data_dir, *_IDX_NAMES))
    ]
    return (arrays[0], arrays[1][:, None]), (arrays[2], arrays[3][:, None])


def _read_idx(path):
    """The array of an idx file: a magic number, big-endian sizes, and bytes."""
    content = gzip.decompress(path.read_bytes())
    _, num_dims = struct.unpack_from(">HxB", content)
    shape = struct.unpack_from(f">{num_dims}I", content, offset=4)
    return np.frombuffer(content, "uint8", offset=4 + 4 * num_dims).reshape(shape)


def scale_pixels(images):
    """Float32 images in [0, 1] with a channel axis."""
    images = images.astype("float32")
    images /= 255
    return images if images.ndim == 4 else images[..., None]


def image_dataset(train, test, sizes, seed, classes):
    """The `Dataset` of pairs of images and labels, with the classes of each task."""
    parts = split_indices(seed, len(train[0]), len(test[0]), sizes)
    splits = [
        (images[part], labels[part])
        for (images, labels), part in zip((train, train, test), parts, strict=True)
    ]
    return multiclass_dataset(splits, classes)


def multiclass_dataset(splits, classes):
    """The `Dataset` of three pairs of images and labels."""
    return Dataset(
        *(Split(scale_pixels(x), y.astype("int32")) for x, y in splits),
        task_names=tuple(classes),
        task_kinds=("multiclass",) * len(classes),
        num_classes=tuple(len(names) for names in classes.values()),
        info={"class_names": {task: tuple(names) for task, names in classes.items()}},
    )
