"""A few kills in CI; `scripts/fault_injection.py` itself injects many."""

import json
import pathlib
import subprocess
import sys

import fault_injection
import pytest


@pytest.mark.backend_independent
def test_a_killed_training_goes_on_as_if_nothing_had_happened():
    # At a random moment, Keras may be in the middle of a backup.
    options = ["--backend", "torch", "--kills", "0", "--writes", "2", "--files", "20"]
    done = subprocess.run(
        [sys.executable, fault_injection.__file__, *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=540,
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    times = {fault: count for fault, count, _ in rows}
    assert times["kill -9 while a history is written, torch"] == 2
    assert {lost for _, _, lost in rows} == {"nothing"}


HANG = """
import time
import fault_injection

fault_injection.LIMIT = 1
fault_injection.train = lambda *arguments: time.sleep(60)
fault_injection.attempt("folder")
"""


@pytest.mark.backend_independent
def test_a_training_that_hangs_is_an_error():
    done = subprocess.run(
        [sys.executable, "-c", HANG],
        cwd=pathlib.Path(fault_injection.__file__).parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert "A training took more than 1 seconds." in done.stderr
