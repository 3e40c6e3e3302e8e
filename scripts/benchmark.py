"""Time the same work in all forms, on every backend that is installed.

    python scripts/benchmark.py

takes about half an hour on two cores and writes into docs/results. With --quick it only
sees that all forms compute the same. With --release it compares the package with the
original code alone.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

from common.command_line import COMPILE_FAST, check_names, make_parser

BACKENDS = "tensorflow", "jax", "torch"
ROUNDS = 5  # How often each form has its turn.
MANY_LABELS = "W2"  # Its labels by name are timed too.


def main(arguments=None):
    """Run each part in a process of its own, and write the page."""
    given = list(map(str, sys.argv[1:] if arguments is None else arguments))
    options = parse(given)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.part:
        run_here(options, given[: given.index("--part")])
        return
    if options.quick:
        os.environ.setdefault("XLA_FLAGS", COMPILE_FAST)
    os.environ["KERAS_BACKEND"] = options.backends[0]
    from research.speed import FORMS, WORKLOADS
    from research.speed.report import write_page

    check_names("workload", options.workloads or [], WORKLOADS)
    check_names("form", options.forms or [], FORMS)
    todos = {backend: parts(backend, options) for backend in options.backends}
    if not any(todos.values()):
        sys.exit("Nothing to measure: the release has other workloads, and TensorFlow.")
    for backend, todo in todos.items():
        for number, part in enumerate(todo, start=1):
            print(f"{backend}, {number} of {len(todo)}: {' '.join(part)}", flush=True)
            environment = {**os.environ, "KERAS_BACKEND": backend}
            if part[0] == "release":
                environment["TF_USE_LEGACY_KERAS"] = "1"  # It needs Keras 2.
            command = [sys.executable, __file__, *given, "--part", *part]
            if subprocess.run(command, env=environment, check=False).returncode:
                sys.exit(f"{' '.join(part)} failed on {backend}.")
    if not options.quick:
        print(f"Written to {write_page(options.out)}.")


def parse(arguments):
    """Read the command line."""
    installed = [name for name in BACKENDS if importlib.util.find_spec(name)]
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--backends", nargs="+", choices=BACKENDS, default=installed, help="to measure")
    add("--workloads", nargs="+", metavar="NAME", help="such as W4; all if left out")
    add("--forms", nargs="+", metavar="NAME", help="such as bank; all if left out")
    add("--quick", action="store_true", help="only see that all forms agree")
    add("--release", metavar="FILE", help="dselect_k_moe.py of the original release")
    add("--out", default="docs/results", type=pathlib.Path, help="of the results")
    add("--part", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def parts(backend, options):
    """List what to run for a backend, one process each: lists of names."""
    from research.speed import WORKLOADS
    from research.speed.release import POSSIBLE
    from research.speed.replicated import SHAPES

    workloads = options.workloads or list(WORKLOADS)
    if options.quick:
        return [["check", *workloads]]
    if options.release:
        own = POSSIBLE if backend == "tensorflow" else ()
        return [["release", name] for name in workloads if name in own]
    # Replicas are one program on JAX alone.
    shapes = SHAPES if backend == "jax" and not options.workloads else ()
    found = [["workloads", name] for name in workloads]
    if not options.forms and MANY_LABELS in workloads:
        found.append(["labels", MANY_LABELS])
    return [*found, *(["replicate", name] for name in shapes)]


def run_here(options, given):
    """Run a part in this process, and keep what it gives."""
    from research.speed import WORKLOADS
    from research.speed.labels import measure_labels
    from research.speed.measure import check_forms, measure
    from research.speed.release import measure_release
    from research.speed.replicated import measure_replicate

    def progress(text):
        if sys.stderr.isatty():
            print(f"\r  {text:60s}", end="", file=sys.stderr, flush=True)

    kind, *names = options.part
    if kind == "check":
        # Some workloads are the same when they are small.
        for workload in dict.fromkeys(WORKLOADS[name].small() for name in names):
            check_forms(workload)
        return
    (name,), work = names, WORKLOADS.get(names[0])
    if kind == "workloads":
        chosen, found = work.forms, {"title": work.title}
        if options.forms:
            chosen = [form for form in chosen if form in ("bank", *options.forms)]
        else:
            found |= {"differences": check_forms(work)}
        makers = {form: functools.partial(work.model, form) for form in chosen}
        found |= measure(work, makers, ROUNDS, progress)
    elif kind == "labels":
        found = measure_labels(work, progress=progress)
    elif kind == "replicate":
        found = measure_replicate(name, progress=progress)
    else:
        found = measure_release(options.release, name, ROUNDS, progress)
        # Results keep no folders of this machine.
        given = [pathlib.Path(w).name if w == options.release else w for w in given]
    keep(options.out, kind, name, found, given)


def keep(out, kind, name, found, given):
    """Keep a result in the file of the device and the backend; return its path."""
    from common.environment import environment, file_name
    from common.files import write_json

    about = {
        **environment(),
        "command": f"python scripts/benchmark.py {' '.join(given)}",
    }
    path = out / file_name("benchmark", about)
    kept = {"workloads": {}, "labels": {}, "replicate": {}, "release": {}}
    if path.exists():
        kept |= json.loads(path.read_text(encoding="utf-8"))
    kept["about"] = about
    kept[kind][name] = {**found, "about": about}
    write_json(path, kept)
    return path


if __name__ == "__main__":
    sys.exit(main())
