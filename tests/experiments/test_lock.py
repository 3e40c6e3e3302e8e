"""One process at a time changes a file."""

import subprocess
import sys

import pytest

from experiments import lock
from experiments.lock import locked

pytestmark = pytest.mark.backend_independent

HOLD = """
import runpy, sys, time
with runpy.run_path(sys.argv[1])["locked"](sys.argv[2]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process_even_if_it_is_killed(tmp_path):
    path = tmp_path / "new" / "file"
    command = [sys.executable, "-c", HOLD, lock.__file__, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(RuntimeError, match=r"writes .*file\."), locked(path):
            pass
        other.kill()
        other.wait(timeout=60)
        with locked(path):
            assert path.parent.exists()
    assert not list(path.parent.iterdir())
