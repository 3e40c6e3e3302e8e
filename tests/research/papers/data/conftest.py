"""Small files in the official formats, which the loaders take for the official ones."""

import gzip
import hashlib
import importlib
import struct

import numpy as np
import pytest

from research.papers.data.official_files import FILES, File


@pytest.fixture
def official(tmp_path, monkeypatch):
    """Write a file and make it the one that is expected under its name."""

    def write(dataset, name, content):
        path = tmp_path / dataset / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        expected = File(len(content), sha256, path.as_uri())
        monkeypatch.setitem(FILES[dataset], name, expected)
        return path

    return write


@pytest.fixture
def idx_dir(tmp_path, official):
    """A folder with MNIST and Fashion-MNIST of 200 training and 50 test images.

    A pixel says which image it is: the last ones the number, the first the data set.
    """

    def idx(array):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        return gzip.compress(head + array.astype("uint8").tobytes())

    for first, dataset in enumerate(("mnist", "fashion_mnist")):
        for part, size in {"train": 200, "t10k": 50}.items():
            images = np.zeros((size, 28, 28))
            images[:, 0, 0] = first + 1
            images[:, 27, 27] = np.arange(size) + (part == "t10k") * 200 + 1
            labels = np.arange(size) % 10
            for name, array in {"images-idx3": images, "labels-idx1": labels}.items():
                official(dataset, f"{part}-{name}-ubyte.gz", idx(array))
    return tmp_path


@pytest.fixture
def module():
    """A data set's module, whose name is that of its function."""
    return lambda name: importlib.import_module(f"research.papers.data.{name}")
