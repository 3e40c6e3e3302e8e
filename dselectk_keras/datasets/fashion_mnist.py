"""Articles of clothing, in the form of MNIST."""

import os

from dselectk_keras.datasets import _images
from dselectk_keras.datasets.dataset import Dataset

_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FILES = _images.idx_files(
    _URL,
    train_images=(
        26_421_880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    train_labels=(
        29_515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    test_images=(
        4_422_102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    test_labels=(
        5_148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
CLASS_NAMES = (
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


def fashion_mnist(
    num_train: int | None = None,
    num_validation: int = 10_000,
    num_test: int | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike | None = None,
) -> Dataset:
    """Fashion-MNIST: 70,000 articles of clothing, 28 x 28 pixels, ten classes.

    Ours: the validation split is held out of the 60,000 training images at random;
    pixels are scaled to [0, 1].

    Args:
        num_train: number of training images; `None` is all others. Defaults to `None`.
        num_validation: number of validation images. Defaults to `10_000`.
        num_test: number of test images; `None` is all 10,000. Defaults to `None`.
        seed: non-negative integer; determines the splits. Defaults to `0`.
        data_dir: folder that holds the official files, or a folder `fashion_mnist`
            with them; `None` downloads them. Defaults to `None`.

    Returns:
        A `Dataset` of one task, `article`, with float32 images (samples, 28, 28, 1)
        and int32 labels (samples, 1). Its `info` holds `class_names` by task.

    Example:
        >>> data = fashion_mnist(data_dir="data")  # doctest: +SKIP
        >>> data.info["class_names"]["article"][9]  # doctest: +SKIP
        'Ankle boot'

    Reference:
        Xiao et al., Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
        Learning Algorithms, 2017 (https://arxiv.org/abs/1708.07747).
    """
    return _images.idx_dataset(
        _images.read_idx_dataset("fashion_mnist", FILES, data_dir),
        (num_train, num_validation, num_test),
        seed,
        {"article": CLASS_NAMES},
    )
