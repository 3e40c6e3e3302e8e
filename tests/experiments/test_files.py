"""Files are written whole."""

import pytest

from experiments.files import replacing


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
