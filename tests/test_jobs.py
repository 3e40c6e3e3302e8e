"""Processes that tests start get the time that a busy machine needs, and end."""

import os
import subprocess
import sys
import time

import jobs
import pytest

pytestmark = pytest.mark.backend_independent
SECONDS = 120
# A process that waits, and has started another, which holds its pipe.
WAITS = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep({SECONDS})"])
time.sleep({SECONDS})
"""


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(jobs, "LIMIT", 3)
    monkeypatch.setattr(jobs, "PAUSE", 1)
    monkeypatch.setattr(jobs.os, "cpu_count", lambda: 2)


@pytest.mark.parametrize(("load", "waits"), [(0.5, 3), (2.0, 3), (4.0, 6)])
def test_a_busy_machine_gives_a_process_more_time(monkeypatch, impatient, load, waits):
    monkeypatch.setattr(jobs.os, "getloadavg", lambda: (load, 0, 0), raising=False)

    class Process:
        args, calls = "sleep", 0

        def communicate(self, timeout):
            self.calls += 1
            raise subprocess.TimeoutExpired(self.args, timeout, "out", "errors")

    process = Process()
    message = "sleep has not ended after 3 seconds: out\nerrors"
    with pytest.raises(TimeoutError, match=message):
        jobs.wait(process)
    assert process.calls == waits


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such groups.")
def test_a_process_without_end_leaves_no_pipe_and_no_other_process(impatient):
    began = time.monotonic()
    with jobs.started(sys.executable, "-c", WAITS, stdout=subprocess.PIPE) as process:
        pipe = os.dup(process.stdout.fileno())
        with pytest.raises(TimeoutError):
            jobs.wait(process)
    assert process.returncode
    assert process.stdout.closed
    # The end of the pipe comes once nobody can write.
    assert os.read(pipe, 1) == b""
    os.close(pipe)
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_has_to_end_with_the_code_that_is_expected(code):
    command = [sys.executable, "-c", f"print('said'); raise SystemExit({code})"]
    assert jobs.run(*command, code=code) == "said\n"
    with pytest.raises(AssertionError, match="said"):
        jobs.run(*command, code=1)
