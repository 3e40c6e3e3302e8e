"""Test and time the package on the accelerator of this machine, in ten minutes.

    python scripts/gpu_report.py

tests all backends that are installed, for at most half of the time, and then times
them. It writes the results and a page, gpu.md. With --quick it only sees, on any
machine, that the report works.
"""

import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import time

import benchmark
from command_line import make_parser

ROOT = pathlib.Path(__file__).parents[1]
TESTS = ("tests/gates/test_golden.py", "tests/gates/test_contract.py")
WORKLOADS = ("W4", "W1-static-4096", "W1-per-example-4096", "W2", "W3", "W4-dselect-k")
# A list of 128 gates takes minutes to compile.
FORMS = ("plain", "plain+metrics", "bank", "stacked", "condensed", "dispatched")
CUDA = {
    "tensorflow": 'pip install ".[gpu]"',
    "jax": 'pip install ".[gpu-jax]"',
    "torch": "see pytorch.org",
}
DEVICE = "from experiments.environment import device; print(device())"


def main(arguments=None):
    """Run all parts on each backend, each in a process of its own."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    installed = [n for n in benchmark.BACKENDS if importlib.util.find_spec(n)]
    add("--backends", nargs="+", choices=benchmark.BACKENDS, default=installed)
    add("--minutes", type=float, default=9.5, help="for all backends together")
    add("--quick", action="store_true", help="tiny, and without an accelerator")
    add("--out", default="build/gpu_report", type=pathlib.Path, help="folder")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    began, backends, rows = time.monotonic(), options.backends, []
    if not options.quick:
        for backend in backends:
            check_device(backend)
    for minutes, parts in ((options.minutes / 2, test), (options.minutes, measure)):
        for place, backend in enumerate(backends):
            now = time.monotonic()
            left = (began + 60 * minutes - now) / (len(backends) - place)
            run = functools.partial(run_apart, backend, now + left)
            rows += [[backend, *row] for row in parts(run, options)]
    from benchmarks import report

    heads = ["backend", "part", "result"]
    options.out.mkdir(parents=True, exist_ok=True)
    table = report.lines(heads, rows, left=len(heads))
    text = f"# Report on an accelerator\n\n{table}\n\nSee [all times](benchmark.md).\n"
    (options.out / "gpu.md").write_text(text, encoding="utf-8")
    report.write_page(options.out)
    print(f"Written to {options.out / 'gpu.md'}.")


def check_device(backend):
    """Stop if a backend sees no accelerator."""
    environment = {**os.environ, "KERAS_BACKEND": backend}
    command = [sys.executable, "-c", DEVICE]
    options = {"cwd": ROOT / "scripts", "text": True, "env": environment}
    device = subprocess.check_output(command, **options).splitlines()[-1]
    if "CPU" in device:
        sys.exit(
            f"There must be an accelerator. Received: {backend} on {device}. To "
            "see that the report works, use --quick. Name other backends with "
            f"--backends, or install {backend} for CUDA: {CUDA[backend]}."
        )


def test(run, options):
    """See that a backend computes what it should: rows of part and result."""
    if not all(map(importlib.util.find_spec, ("pytest", "xdist", "hypothesis"))):
        return [["tests", 'not run: needs pip install ".[dev]"']]
    pytest = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    chosen = ["-k", "dev-000"] if options.quick else []
    paths = TESTS[:1] if options.quick else TESTS
    return [[path, run([*pytest, *chosen, path])] for path in paths]


def measure(run, options):
    """Time a backend as long as the time lasts: rows of part and result."""
    script = str(ROOT / "scripts/benchmark.py")
    if options.quick:
        return [["check", run([script, "--part", "check", "W4"])]]
    given = [script, "--out", str(options.out.resolve()), "--forms", *FORMS]
    return [[n, run([*given, "--part", "workload", n])] for n in WORKLOADS]


def run_apart(backend, end, arguments):
    """Run Python until a time, and say how it went."""
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if (left := end - time.monotonic()) <= 0:
        return "no time left"
    print(backend, *arguments, flush=True)
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            timeout=left,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no time left"
    # Backends say on stderr what matters to nobody, unless something fails.
    said = done.stdout.strip() or (done.stderr.strip() if done.returncode else "")
    state = "failed" if done.returncode else "passed"
    return ": ".join([state, *said.splitlines()[-1:]])


if __name__ == "__main__":
    sys.exit(main())
