"""Test and time the package on the accelerator of this machine, in ten minutes.

    python scripts/gpu_report.py --out docs/results

tests all backends that are installed, for at most half of the time, and then times
them. It writes benchmark_gpu_*.json for each backend, and gpu.md. With --quick it only
sees, on any machine, that the report works.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from benchmark import BACKENDS, gathered, installed

ROOT = pathlib.Path(__file__).parents[1]
WORKLOADS = ("W4", "W1-static-4096", "W1-per-example-4096", "W2", "W3", "W4-dselect-k")
MIXED = "mixed_bfloat16"
CUDA = {
    "tensorflow": 'pip install ".[gpu]"',
    "jax": 'pip install ".[gpu-jax]"',
    "torch": "see pytorch.org",
}
TESTS = ("tests/gates/test_golden.py", "tests/gates/test_contract.py")


def main(arguments=None):
    """Run all parts on each backend, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--backends", nargs="+", choices=BACKENDS, default=installed())
    add("--minutes", type=float, default=9.5, help="for all backends together")
    add("--quick", action="store_true", help="tiny, and without an accelerator")
    add("--out", default="build/gpu_report", help="folder to write into")
    add("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.part:
        print(json.dumps(run_here(*options.part, quick=options.quick)))
        return
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    began, backends = time.monotonic(), options.backends
    if not options.quick:
        check_devices(backends)
    found, checks = ({backend: {} for backend in backends} for _ in range(2))
    for minutes, part in ((options.minutes / 2, test), (options.minutes, measure)):
        for place, backend in enumerate(backends):
            now = time.monotonic()
            left = (began + 60 * minutes - now) / (len(backends) - place)
            environment = {**os.environ, "KERAS_BACKEND": backend}
            run = functools.partial(run_apart, environment, now + left)
            numbers, states = part(backend, run, options.quick)
            found[backend] |= numbers
            checks[backend] |= states
            result = gathered(backend, found[backend], " ".join(["python", *sys.argv]))
            result["checks"] = checks[backend]
            path = out / f"benchmark_gpu_{backend}.json"
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(f"Written to {path}.")
    from benchmarks.report import write_gpu_page

    print(f"Written to {write_gpu_page(out)}.")


def check_devices(backends):
    """Stop if a backend sees no accelerator."""
    for backend in backends:
        device = gathered(backend, {}, "")["about"]["device"]
        if "CPU" in device:
            sys.exit(
                f"There must be an accelerator. Received: {backend} on {device}. To "
                "see that the report works, use --quick. Name other backends with "
                f"--backends, or install {backend} for CUDA: {CUDA[backend]}."
            )


def own_part(quick):
    """The command of a part of this script."""
    return [sys.executable, __file__, *(["--quick"] if quick else []), "--part"]


def test(backend, run, quick):
    """See that a backend trains and computes what it should."""
    checks = {}
    with tempfile.TemporaryDirectory() as folder:
        sizes = ["--num-tasks", "16", "--epochs", "1" if quick else "3", "--quiet"]
        sizes += ["--num-train", "64"] if quick else []
        train = [sys.executable, str(ROOT / "scripts/train.py"), "--backend", backend]
        checks["train.py"], _ = run([*train, *sizes, "--out", f"{folder}/run"])
    checks[MIXED], lines = run([*own_part(quick), "mixed", "W4"])
    if lines:
        checks[MIXED] |= json.loads(lines[-1])
    has_pytest = all(map(importlib.util.find_spec, ("pytest", "xdist", "hypothesis")))
    pytest = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    pytest += ["-k", "dev-000"] if quick else []
    for path in TESTS[:1] if quick else TESTS:
        checks[path] = {"state": 'not run: needs pip install ".[dev]"'}
        if has_pytest:
            checks[path], lines = run([*pytest, path], cwd=ROOT)
            if lines:
                checks[path]["said"] = lines[-1]
    return {}, checks


def measure(backend, run, quick):
    """Time a backend, as long as the time lasts."""
    own, found, checks = own_part(quick), {}, {}
    for name in WORKLOADS[:1] if quick else WORKLOADS:
        checks[name], lines = run([*own, "workload", name])
        if lines:
            found["workload", name] = json.loads(lines[-1])
    if backend == "jax":
        for copies in ("2",) if quick else ("32", "256"):
            part = ("replicate", "C.2.2", copies)
            checks[f"replicate, {copies} seeds"], lines = run([*own, *part])
            if lines:
                found[part] = json.loads(lines[-1])
    return found, checks


def run_apart(environment, end, command, **options):
    """Run a command until a time: how it went, and its lines if it went well."""
    began = time.monotonic()
    left = end - began
    if left <= 0:
        return {"state": "no time left"}, []
    print(" ".join(command[1:]), flush=True)
    try:
        done = subprocess.run(
            command,
            env=environment,
            timeout=left,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
    except subprocess.TimeoutExpired:
        return {"state": "no time left", "seconds": left}, []
    state = {"seconds": time.monotonic() - began}
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        return {"state": "failed", **state, "said": "\n".join(lines[-20:])}, []
    return {"state": "passed", **state}, done.stdout.strip().splitlines()


def run_here(kind, name, copies="32", quick=False):
    """Run a part in this process."""
    import keras
    import numpy as np

    from benchmarks import WORKLOADS
    from benchmarks.forms import forms_of, new_model
    from benchmarks.measure import labels_of
    from benchmarks.measure import measure as measure_forms
    from benchmarks.replicated import measure_replicate

    if kind == "replicate":
        epochs = 1 if quick else None
        return measure_replicate(name, int(copies), rounds=1, epochs=epochs)
    workload = WORKLOADS[name].small() if quick else WORKLOADS[name]
    if kind == "mixed":
        keras.mixed_precision.set_global_policy(MIXED)
        model = new_model(workload, "bank")
        x, y = workload.data()
        log = model.fit(x, labels_of(model, y), batch_size=len(x), epochs=9, verbose=0)
        losses = log.history["loss"]
        if not (np.isfinite(losses).all() and losses[-1] < losses[0]):
            raise ValueError(f"The loss must decrease. Received: {losses}.")
        return {"losses": [losses[0], losses[-1]]}
    # A list of 128 gates takes minutes to compile.
    forms = [form for form in forms_of(workload) if form != "list"]
    rounds = 1 if quick else 5
    return {"title": workload.title, **measure_forms(workload, rounds, forms=forms)}


if __name__ == "__main__":
    sys.exit(main())
