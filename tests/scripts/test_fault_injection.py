"""A few kills in CI; `scripts/fault_injection.py` itself injects many."""

import json
import subprocess
import sys

import fault_injection
import pytest


@pytest.mark.backend_independent
def test_a_killed_training_goes_on_as_if_nothing_had_happened():
    options = ["--backend", "torch", "--kills", "1", "--writes", "1", "--files", "20"]
    done = subprocess.run(
        [sys.executable, fault_injection.__file__, *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    times = {fault: count for fault, count, _ in rows}
    assert times["kill -9 at a random moment, torch"] == 1
    assert times["kill -9 while a checkpoint is written, torch"] == 1
    assert {lost for _, _, lost in rows} == {"nothing"}
