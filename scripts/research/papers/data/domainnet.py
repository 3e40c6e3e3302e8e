"""Pictures of the same objects in six styles."""

import os
from collections.abc import Sequence

import numpy as np

from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.utils import check_count, optional_import
from research.papers.data import official_files
from research.papers.data._check_some import check_some
from research.papers.data.partition import split_indices

SOURCE = "http://ai.bu.edu/M3SDA/ (the cleaned version)"
NUM_CLASSES = 345
NUM_IMAGES = {
    # domain: training images, test images
    "clipart": (33_525, 14_604),
    "infograph": (36_023, 15_582),
    "painting": (50_416, 21_850),
    "quickdraw": (120_750, 51_750),
    "real": (120_906, 52_041),
    "sketch": (48_212, 20_916),
}
DOMAINS = tuple(NUM_IMAGES)


def domainnet(
    domains: Sequence[str] = DOMAINS,
    image_size: int | None = None,
    num_train: int | None = None,
    num_validation: int = 10_000,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """DomainNet: 586,575 pictures of 345 classes in six domains.

    One classification task. The domain is an input, which gates can use.

    From the paper: the six domains as one problem. Ours: the official lists of training
    and test images; the validation split is held out of the training images at random;
    images are resized to a square, and pixels scaled to [0, 1].

    The images take many gigabytes: without `image_size` the data set holds their paths,
    to be read batch by batch (see the page on data sets).

    Args:
        domains: Some of `"clipart"`, `"infograph"`, `"painting"`, `"quickdraw"`,
            `"real"`, `"sketch"`. Defaults to all of them.
        image_size: Height and width of the images, which are read with TensorFlow;
            `None` gives paths.
        num_train: Number of training images, of all domains together, chosen at random;
            `None` is all others.
        num_validation: Number of validation images.
        num_test: Number of test images; `None` is all.
        seed: Non-negative integer; determines the splits.
        data_dir: Folder that holds, or whose folder `domainnet` holds, the lists, such
            as `sketch_train.txt`, and the folders of images, such as `sketch`. They
            have to be downloaded and extracted by hand.

    Returns:
        A `Dataset` of one task, `class`. Inputs are a dict of `path` (samples,), an
        array of `str`, or `image` (samples, size, size, 3), float32, and of `domain`
        (samples,), int32; labels are int32 (samples, 1). Its `info` holds `domains`,
        the names by number, and `class_names` by task.

    Example:
        >>> data = domainnet(["sketch"], data_dir="data")  # doctest: +SKIP
        >>> data.num_classes  # doctest: +SKIP
        (345,)

    Reference:
        Muqeeth et al., Soft Merging of Experts with Adaptive Routing, 2023
        (https://arxiv.org/abs/2306.03745); Peng et al., Moment Matching for
        Multi-Source Domain Adaptation, 2019 (https://arxiv.org/abs/1812.01754).
    """
    check_some("domains", domains, DOMAINS)
    if image_size is not None:
        check_count("image_size", image_size)
    train, test = (
        [
            (number, *image)
            for number, domain in enumerate(domains)
            for image in _read_list(domain, part, data_dir)
        ]
        for part in ("train", "test")
    )
    sizes = (num_train, num_validation, num_test)
    parts = split_indices(seed, len(train), len(test), sizes)
    splits = [
        _make_split([images[i] for i in part], image_size)
        for images, part in zip((train, train, test), parts, strict=True)
    ]
    folders = {label: path.parent.name for _, path, label in train + test}
    return Dataset(
        *splits,
        task_names=("class",),
        task_kinds=("multiclass",),
        num_classes=(NUM_CLASSES,),
        info={
            "domains": tuple(domains),
            "class_names": {
                "class": tuple(folders.get(i, "") for i in range(NUM_CLASSES))
            },
        },
    )


def _read_list(domain, part, data_dir):
    """The paths and labels in a list of images."""
    name = f"{domain}_{part}.txt"
    expected = f"{NUM_IMAGES[domain][part == 'test']:,} lines of path and label"
    path = official_files.find_file("domainnet", name, data_dir, expected, SOURCE)
    lines = path.read_text().splitlines()
    images = [
        (path.parent / name, int(label))
        for name, _, label in (line.rpartition(" ") for line in lines)
        if label.isdigit() and int(label) < NUM_CLASSES
    ]
    if len(images) != len(lines) or len(lines) != NUM_IMAGES[domain][part == "test"]:
        received = f"{len(lines):,} lines, {len(images):,} of which are complete"
        raise official_files.damaged_file_error(path, expected, received, SOURCE)
    return images


def _make_split(images, image_size):
    numbers, paths, labels = zip(*images, strict=True)
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(
                f"The data set 'domainnet' lists an image that is not there: {path}. "
                f"Get the images from {SOURCE}, and extract them beside their lists."
            )
    x = {"domain": np.array(numbers, "int32")}
    if image_size is None:
        x["path"] = np.array([str(path) for path in paths], object)
    else:
        x["image"] = np.stack([_read_image(path, image_size) for path in paths])
    return Split(x, np.array(labels, "int32")[:, None])


def _read_image(path, size):
    tf = optional_import("tensorflow", extra="tensorflow", purpose="Reading images")
    image = tf.io.decode_image(
        path.read_bytes(), channels=3, dtype="float32", expand_animations=False
    )
    return tf.image.resize(image, (size, size), antialias=True).numpy()
