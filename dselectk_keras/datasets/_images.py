"""Helpers of the image data sets: the idx format, splits and overlays."""

import gzip
import struct

import numpy as np

from dselectk_keras.datasets import _files, _sampling
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.split import Split

_IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_SHIFT = 8  # Each image moves by 4 pixels, to opposite corners.


def idx_files(url, **files):
    """The `File` of each idx file by name, from pairs of its size and SHA-256."""
    names = zip(_IDX_NAMES, files.values(), strict=True)
    return {
        name: _files.File(size, sha256, url + name) for name, (size, sha256) in names
    }


def read_idx_dataset(dataset, files, data_dir):
    """Training images and labels, then test images and labels, as bytes."""
    paths = _files.fetch_files(dataset, files, data_dir)
    return [_read_idx(paths[name]) for name in _IDX_NAMES]


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


def idx_dataset(raw, sizes, seed, classes):
    """The `Dataset` of one task from what `read_idx_dataset` gives."""
    train, train_labels, test, test_labels = raw
    return image_dataset(
        (train, train_labels[:, None]),
        (test, test_labels[:, None]),
        sizes,
        seed,
        classes,
    )


def image_dataset(train, test, sizes, seed, classes):
    """A `Dataset` of images, with a validation split held out of the training images.

    Args:
        train: Images and labels (samples, tasks), as bytes.
        test: The same, of the test part.
        sizes: The arguments `num_train`, `num_validation` and `num_test`.
        seed: Decides which examples are in which split.
        classes: The names of the classes by task name.
    """
    parts = _sampling.split_indices(seed, len(train[0]), len(test[0]), sizes)
    splits = [
        Split(scale_pixels(images[part]), labels[part].astype("int32"))
        for (images, labels), part in zip((train, train, test), parts, strict=True)
    ]
    return _multiclass_dataset(splits, classes)


def _multiclass_dataset(splits, classes):
    return Dataset(
        *splits,
        task_names=tuple(classes),
        task_kinds=("multiclass",) * len(classes),
        num_classes=tuple(len(names) for names in classes.values()),
        info={"class_names": {task: tuple(names) for task, names in classes.items()}},
    )


def overlay_dataset(raw, sizes, num_held_out, seed, class_names):
    """Pairs of overlaid images, with a task for each of the two.

    Args:
        raw: What `read_idx_dataset` gives.
        sizes: The arguments `num_train`, `num_validation` and `num_test`.
        num_held_out: The number of training images for validation pairs only.
        seed: Decides the images and the pairs.
        class_names: Names of the classes.
    """
    sizes = _sampling.check_sizes(
        **dict(zip(("num_train", "num_validation", "num_test"), sizes, strict=True))
    )
    train, train_labels, test, test_labels = raw
    # Images are split before they are paired, so that splits share no image.
    pools = _sampling.split_indices(
        seed, len(train), len(test), (None, num_held_out, None)
    )
    splits = []
    for stream, (pool, size) in enumerate(zip(pools, sizes, strict=True)):
        images, labels = (test, test_labels) if stream == 2 else (train, train_labels)
        first, second = pool[_draw_pairs(seed, stream, size, len(pool))]
        x = overlay_images(images[first], images[second])
        y = np.stack([labels[first], labels[second]], axis=1)
        splits.append(Split(scale_pixels(x), y.astype("int32")))
    return _multiclass_dataset(
        splits, {"top_left": class_names, "bottom_right": class_names}
    )


def _draw_pairs(seed, stream, num_pairs, num_images):
    """Indices of two different images per pair, in two rows."""
    rng = _sampling.random_stream(seed, 1, stream)
    first = rng.integers(num_images, size=num_pairs)
    other = rng.integers(num_images - 1, size=num_pairs)
    return np.stack([first, other + (other >= first)])


def overlay_images(first, second):
    """The maximum of an image in the top left and one in the bottom right corner."""
    num_images, height, width = first.shape
    canvas = np.zeros((num_images, height + _SHIFT, width + _SHIFT), first.dtype)
    canvas[:, :height, :width] = first
    corner = canvas[:, _SHIFT:, _SHIFT:]
    np.maximum(corner, second, out=corner)
    return canvas
