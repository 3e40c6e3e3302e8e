"""Files are written whole, and nothing altered is read."""

import random

import numpy as np
import pytest

from dselectk_keras.archive import read_arrays, replacing, write_arrays

ARRAYS = {
    "numbers": np.arange(60.0).reshape(3, 20),
    "names": np.array(["click", "like"]),
    "nothing": np.zeros((0, 2), "int32"),
    "scalar": np.float32(0.5),
}


@pytest.mark.parametrize("compress", [False, True])
def test_arrays_are_the_same_and_numpy_reads_them_too(compress, tmp_path):
    path = tmp_path / "new" / "arrays.npz"
    write_arrays(path, ARRAYS, compress)
    with np.load(path) as plain:
        for found in (read_arrays(path), dict(plain)):
            assert list(found) == list(ARRAYS)
            for name, array in ARRAYS.items():
                np.testing.assert_array_equal(found[name], array)
                assert found[name].dtype == array.dtype


@pytest.mark.parametrize("kind", ["bit", "truncated", "longer"])
def test_an_altered_file_is_refused_by_name_and_left_alone(kind, tmp_path):
    path = tmp_path / "arrays.npz"
    write_arrays(path, ARRAYS)
    content, draw = path.read_bytes(), random.Random(0)
    for _ in range(200):
        place = draw.randrange(len(content))
        altered = bytearray(content)
        altered[place] ^= 1 << draw.randrange(8)
        altered = {
            "bit": bytes(altered),
            "truncated": content[:place],
            "longer": content + draw.randbytes(1 + place % 100),
        }[kind]
        path.write_bytes(altered)
        with pytest.raises(ValueError, match=r"arrays.npz is damaged"):
            read_arrays(path)
        assert path.read_bytes() == altered


class Code:
    """What runs code if it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemError('code was run')",)


def test_a_hostile_file_with_a_checksum_is_refused_too(tmp_path):
    path = tmp_path / "arrays.npz"
    write_arrays(path, {"code": np.array([Code()], object)})
    with pytest.raises(ValueError, match=r"arrays.npz is damaged.*Object arrays"):
        read_arrays(path)


def test_an_array_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "arrays.npz"

    def save(file, **arrays):
        import zipfile

        with zipfile.ZipFile(file, "w") as archive:
            header = "{'descr': '<f8', 'fortran_order': False, 'shape': (10**17,)}"
            header = header.replace("10**17", "1" + 17 * "0").ljust(117) + "\n"
            archive.writestr("a.npy", b"\x93NUMPY\x01\x00v\x00" + header.encode())

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", save)
        write_arrays(path, {})
    with pytest.raises(ValueError, match=r"arrays.npz is damaged"):
        read_arrays(path)


def test_a_file_that_cannot_be_completed_does_not_replace_the_one_before(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")

    def write():
        with replacing(path) as file:
            file.write(b"half")
            raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        write()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"
