"""Files are written whole, by one process at a time."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from jobs import started

from common import files
from common.files import locked, numbers, read_json, write_json, write_whole

pytestmark = pytest.mark.backend_independent


def test_a_file_that_cannot_be_completed_does_not_replace_the_one_before(
    tmp_path, monkeypatch
):
    path = tmp_path / "new" / "file"
    write_whole(path, "before")

    def fail(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "after")
    assert [each.name for each in path.parent.iterdir()] == ["file"]
    assert path.read_text() == "before"


def test_a_file_and_its_name_are_on_the_disk_before_it_counts(tmp_path, monkeypatch):
    flushed, fsync = [], files.os.fsync

    def note(number):
        flushed.append([path.name for path in tmp_path.iterdir()])
        fsync(number)

    monkeypatch.setattr(files.os, "fsync", note)
    write_whole(tmp_path / "file", "text")
    assert flushed == [["part_file"], ["file"]]  # The file, and then the folder.


def test_json_is_strict(tmp_path):
    path, content = tmp_path / "found.json", {"a": (1.5, math.nan), "b": -math.inf}
    write_json(path, content | {"c": None, "d": "NaN", "e": True})
    found = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert found == {"a": [1.5, None], "b": None, "c": None, "d": "NaN", "e": True}
    np.testing.assert_equal(numbers(read_json(path)["a"]), [1.5, math.nan])
    assert numbers({"b": None}, lost=math.inf) == {"b": math.inf}


@pytest.mark.parametrize("text", ["", '{"a": 1', "[1]"])
def test_what_is_no_json_object_is_damaged(tmp_path, text):
    path = tmp_path / "found.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"found\.json is damaged or was not written"):
        read_json(path)


HOLD = """
import runpy, sys, time
with runpy.run_path(sys.argv[1])["locked"](sys.argv[2]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process_even_if_it_is_killed(tmp_path):
    path = tmp_path / "new" / "file"
    command = [sys.executable, "-c", HOLD, files.__file__, path]
    with started(*command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(RuntimeError, match=r"writes .*file\."), locked(path):
            pass
        other.kill()
        other.wait(timeout=60)
        with locked(path):
            assert path.parent.exists()
    assert not list(path.parent.iterdir())
