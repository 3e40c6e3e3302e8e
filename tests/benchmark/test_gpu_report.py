"""The report on an accelerator runs its parts, and says what became of each."""

import sys
import time

import benchmark
import gpu_report
import pytest

pytestmark = pytest.mark.backend_independent


def run(code, seconds=60.0):
    return gpu_report.run_apart("torch", time.monotonic() + seconds, ["-c", code])


def test_a_part_passes_fails_or_has_no_time_left():
    assert run("import os; print(1); print(os.environ['KERAS_BACKEND'])") == (
        "passed: torch"
    )
    assert run("raise ValueError('no device')") == "failed: ValueError: no device"
    assert run("import sys; print('a warning', file=sys.stderr)") == "passed"
    assert run("print(1)", seconds=0.0) == "no time left"
    assert run("while True: pass", seconds=0.1) == "no time left"


def test_the_report_tests_before_it_measures(tmp_path, monkeypatch):
    calls = []

    def run_apart(backend, end, arguments):
        calls.append((backend, end, arguments))
        return "passed: 12 passed" if "pytest" in arguments else "passed"

    monkeypatch.setattr(gpu_report, "run_apart", run_apart)
    monkeypatch.setattr(gpu_report, "check_device", lambda backend: None)
    began = time.monotonic()
    gpu_report.main(["--backends", "jax", "torch", "--out", str(tmp_path)])
    backends = [backend for backend, *_ in calls]
    tests, times = len(gpu_report.TESTS), len(gpu_report.WORKLOADS)
    assert backends == [
        *[*["jax"] * tests, *["torch"] * tests],
        *[*["jax"] * times, *["torch"] * times],
    ]
    # The first backend has half of the time for tests, and the last all that is left.
    ends = [end - began for _, end, _ in calls]
    assert ends[0] == pytest.approx(9.5 * 60 / 4, abs=5)
    assert ends[-1] == pytest.approx(9.5 * 60, abs=5)
    for _, _, arguments in calls[2 * tests :]:
        options = benchmark.parse(arguments[1:])
        assert options.out == tmp_path
        assert options.part[0] == "workload"
    page = (tmp_path / "gpu.md").read_text()
    assert f"| torch | {gpu_report.TESTS[0]} | passed: 12 passed |" in page
    assert (tmp_path / "benchmark.md").exists()


def test_without_an_accelerator_there_is_no_report(monkeypatch):
    monkeypatch.setattr(gpu_report, "DEVICE", "print('2 CPU cores')")
    match = r"must be an accelerator\. Received: torch on 2 .* see pytorch\.org"
    with pytest.raises(SystemExit, match=match):
        gpu_report.main(["--backends", "torch"])


def test_without_pytest_the_report_says_how_to_install_it(monkeypatch):
    missing = {"pytest": None}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: missing.get(name, 1))
    rows = gpu_report.test(sys.exit, None)
    assert rows == [["tests", 'not run: needs pip install ".[dev]"']]
