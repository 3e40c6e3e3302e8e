"""Files are written whole, by one process at a time."""

import subprocess
import sys

import pytest
from jobs import started

from experiments import files
from experiments.files import locked, write_whole

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
