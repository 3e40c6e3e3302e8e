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
    options = ["--backend", "torch", "--kills", "0", "--writes", "2"]
    done = subprocess.run(
        [sys.executable, fault_injection.__file__, *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=540,
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    assert rows == [
        ["kill -9 at a random moment", 0, 0],
        ["kill -9 while a history is written", 2, 0],
    ]


SCRIPT = """
import os, pathlib, sys, time
import fault_injection

fault_injection.LIMIT = 1

def train(folder, write, sender):
    sender.send("training")
    {train}

fault_injection.train = train
print(repr(fault_injection.attempt(pathlib.Path({folder!r}), after={after})))
"""


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("train", "after", "text"),
    [
        ("sender.send('digest')", None, "'digest'"),
        ("time.sleep(60)", 0.1, "None"),
        ("os.kill(os.getpid(), 9)", None, "None"),
        ("time.sleep(60)", None, "A training took more than 1 seconds."),
        ("sys.exit(3)", None, "A training ended with the code 3."),
        ("(folder / 'backup').mkdir(); sys.exit(3)", None, "''"),
    ],
)
def test_an_attempt_says_how_a_training_ended(tmp_path, train, after, text):
    script = SCRIPT.format(train=train, after=after, folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=pathlib.Path(fault_injection.__file__).parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (done.stdout + done.stderr).splitlines()[-1].endswith(text)
