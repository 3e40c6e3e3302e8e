"""CIFAR-100 is read from the binary version's archive."""

import io
import tarfile

import numpy as np
import pytest

from research.papers.data import cifar100


@pytest.fixture
def data_dir(tmp_path, official):
    def records(first, size):
        table = np.zeros((size, 2 + 3 * 32 * 32), "uint8")
        table[:, 0] = np.arange(size) % 20
        table[:, 1] = np.arange(size) % 100
        pixels = table[:, 2:].reshape(size, 3, 32, 32)
        pixels[:, 0, 0, 31] = first + np.arange(size)  # Red, at the right end of a row.
        pixels[:, 2, 31, 0] = 255
        return table.tobytes()

    def lines(word, size):
        return "".join(f"{word}_{number}\n" for number in range(size)).encode()

    members = {
        "train.bin": records(0, 150),
        "test.bin": records(150, 50),
        "coarse_label_names.txt": lines("group", 20),
        "fine_label_names.txt": lines("thing", 100),
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, member in members.items():
            info = tarfile.TarInfo(f"cifar-100-binary/{name}")
            info.size = len(member)
            archive.addfile(info, io.BytesIO(member))
    official("cifar100", "cifar-100-binary.tar.gz", content.getvalue())
    return tmp_path


def test_images_and_both_labels(data_dir):
    data = cifar100(num_validation=30, data_dir=data_dir)
    found = []
    for name, size in {"train": 120, "validation": 30, "test": 50}.items():
        x, y = getattr(data, name)
        assert x.shape == (size, 32, 32, 3)
        assert (x.dtype, y.dtype) == (np.float32, np.int32)
        np.testing.assert_array_equal(x[:, 31, 0], [[0, 0, 1]] * size)
        number = np.round(x[:, 0, 31, 0] * 255).astype(int)
        position = number - 150 if name == "test" else number
        np.testing.assert_array_equal(y, np.stack([position % 20, position % 100], 1))
        found += number.tolist()
    assert sorted(found) == list(range(200))
    assert data.task_names == ("coarse", "fine")
    assert data.num_classes == (20, 100)
    assert data.info["class_names"]["fine"][7] == "thing_7"
