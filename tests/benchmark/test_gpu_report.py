"""The report on an accelerator runs its parts, and says what became of each."""

import dataclasses
import json
import os
import sys
import time

import gpu_report
import keras
import pytest

import benchmarks
from benchmarks import WORKLOADS, gather

GOLDEN = gpu_report.TESTS[0]
TINY = dataclasses.replace(
    WORKLOADS["W4"], input_shape=(6,), num_experts=32, units=5, batch_size=8
)


def run(code, seconds=60.0):
    end = time.monotonic() + seconds
    return gpu_report.run_apart(dict(os.environ), end, [sys.executable, "-c", code])


@pytest.mark.backend_independent
def test_a_part_passes_fails_or_has_no_time_left():
    state, lines = run("print(1); print(2)")
    assert (state["state"], lines) == ("passed", ["1", "2"])
    state, lines = run("raise ValueError('no such device')")
    assert (state["state"], lines) == ("failed", [])
    assert state["said"].endswith("ValueError: no such device")
    assert run("print(1)", seconds=0.0) == ({"state": "no time left"}, [])
    assert run("while True: pass", seconds=0.1)[0]["state"] == "no time left"


@pytest.fixture
def in_this_process(monkeypatch):
    """Parts run here instead of in a process of their own; other commands pass."""
    monkeypatch.setitem(WORKLOADS, "W4", TINY)
    monkeypatch.setattr("benchmarks.measure.TURN_SECONDS", 0.001)
    monkeypatch.setattr(
        gpu_report, "gathered", lambda backend, found, command: gather(found, command)
    )

    def run_apart(environment, end, command, **options):
        passed = {"state": "passed", "seconds": 1.0}
        if "--part" not in command:
            return passed, ["12 passed"]
        kind, *names = command[command.index("--part") + 1 :]
        if kind == "replicate":
            return {"state": "failed", "said": "why"}, []
        return passed, [json.dumps(gpu_report.run_here(kind, *names, quick=True))]

    monkeypatch.setattr(gpu_report, "run_apart", run_apart)
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="`make benchmark-check` runs it on torch."
)
def test_the_report_has_speed_precision_and_tests(in_this_process, tmp_path):
    gpu_report.main(["--quick", "--backends", "jax", "--out", str(tmp_path)])
    kept = json.loads((tmp_path / "benchmark_gpu_jax.json").read_text())
    forms = set(kept["workloads"]["W4"]["forms"])
    assert forms == {"plain", "plain+metrics", "bank", "dispatched"}
    first, last = kept["checks"]["mixed_bfloat16"]["losses"]
    assert last < first
    # What fails is known before anything is timed.
    assert [*kept["checks"]][:3] == ["train.py", "mixed_bfloat16", GOLDEN]
    assert kept["checks"][GOLDEN]["said"] == "12 passed"
    page = (tmp_path / "gpu.md").read_text()
    assert "| train.py | passed | 1 |" in page
    assert "| replicate, 2 seeds | failed | - |" in page
    # The other page has only what `benchmark.py` wrote.
    assert "### W4" not in benchmarks.write_page(tmp_path).read_text()


def test_without_an_accelerator_there_is_no_report(in_this_process, monkeypatch):
    monkeypatch.setattr("benchmarks.run.environment", lambda: {"device": "2 CPU cores"})
    match = r"must be an accelerator\. Received: torch on 2 .* see pytorch\.org"
    with pytest.raises(SystemExit, match=match):
        gpu_report.main(["--backends", "torch"])


@pytest.mark.backend_independent
def test_without_pytest_the_report_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(
        gpu_report, "run_apart", lambda *_, **__: ({"state": "passed"}, [])
    )
    missing = {"pytest": None}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: missing.get(name, 1))
    _, checks = gpu_report.test("torch", gpu_report.run_apart, quick=True)
    assert checks["train.py"] == {"state": "passed"}
    assert checks[GOLDEN] == {"state": 'not run: needs pip install ".[dev]"'}
