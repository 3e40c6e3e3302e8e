"""Time the same work in all forms, on every backend that is installed.

    python scripts/benchmark.py

takes about half an hour on two cores and writes into docs/results. With --quick it only
sees that all forms compute the same. With --release, --libmtl or --transformers it
compares the package with other people's code alone.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

from command_line import COMPILE_FAST, check_names, make_parser

BACKENDS = ("tensorflow", "jax", "torch")


def main(arguments=None):
    """Run each part in a process of its own; write what came out."""
    options = parse(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.part:
        return run_here(options)
    if options.quick:
        os.environ.setdefault("XLA_FLAGS", COMPILE_FAST)
    os.environ["KERAS_BACKEND"] = options.backends[0]
    from benchmarks import WORKLOADS, other_parts, parts, run_part, write_page

    workloads = options.workloads or list(WORKLOADS)
    check_names("workload", workloads, WORKLOADS)
    out = pathlib.Path(options.out)
    given = sys.argv[1:] if arguments is None else arguments
    others = {
        name: path
        for name in ("release", "libmtl", "transformers")
        if (path := getattr(options, name)) is not None
    }
    for path in others.values():  # Results keep no folders of this machine.
        given = [pathlib.Path(word).name if word == path else word for word in given]
    command = " ".join(["python scripts/benchmark.py", *given])
    for backend in options.backends:
        if others:
            todo = other_parts(backend, workloads, others)
        else:
            todo = parts(backend, workloads, options.quick, not options.no_memory)
        found = []
        for number, part in enumerate(todo, start=1):
            print(f"{backend}, {number} of {len(todo)}: {' '.join(part)}", flush=True)
            # This process has imported the first backend, and measures nothing.
            here = options.quick and backend == options.backends[0]
            result = run_part(*part) if here else run_apart(backend, part)
            found.append((part, result))
            if not options.quick:  # A run that is cut short keeps what it has.
                path = write(out, backend, found, command)
                print(f"Written to {path}.")
    if not options.quick:
        print(f"Written to {write_page(out)}.")
    return 0


def run_apart(backend, part):
    """What a part gives, run by another process with the backend."""
    command = [sys.executable, __file__, "--part", *part]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if part[0] == "other":
        environment["TF_USE_LEGACY_KERAS"] = "1"  # The release needs Keras 2.
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(part)} failed on {backend}.")
    return json.loads(done.stdout.splitlines()[-1])


def run_here(options):
    """Run a part in this process; its result is the last line of the output."""
    from benchmarks import gather, run_part

    if options.part == ["gather"]:
        kept = json.load(sys.stdin)
        found = {tuple(part): result for part, result in kept["found"]}
        print(json.dumps(gather(found, kept["command"])))
        return 0

    def progress(text):
        if sys.stderr.isatty():
            print(f"\r  {text:60s}", end="", file=sys.stderr, flush=True)

    result = run_part(*options.part, progress=progress)
    progress("")
    print(json.dumps(result))
    return 0


def installed():
    """The backends that are installed."""
    return [name for name in BACKENDS if importlib.util.find_spec(name)]


def gathered(backend, found, command):
    """What `gather` gives, run by another process with the backend."""
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(
        [sys.executable, __file__, "--part", "gather"],
        env=environment,
        input=json.dumps({"found": list(found.items()), "command": command}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def write(out, backend, found, command):
    """Keep the results of a backend in a file that names its device.

    What this run does not measure stays as it was.
    """
    from benchmarks import merge

    result = gathered(backend, dict(found), command)
    device = "cpu" if "CPU" in result["about"]["device"] else result["about"]["device"]
    device = re.sub(r"\W+", "-", device.lower())
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"benchmark_{device}_{backend}.json"
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        result = merge(kept, result)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def parse(arguments):
    """Read the command line."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add(
        "--backends",
        nargs="+",
        choices=BACKENDS,
        default=installed(),
        help="backends to measure",
    )
    add("--workloads", nargs="+", metavar="NAME", help="such as W4; all if left out")
    add("--quick", action="store_true", help="only see that all forms agree")
    add("--no-memory", action="store_true", help="leave out the peaks of memory")
    add("--release", metavar="FILE", help="dselect_k_moe.py of the original release")
    add("--libmtl", metavar="FOLDER", help="folder of a copy of LibMTL")
    add("--transformers", metavar="FOLDER", help="made by pip install --target FOLDER")
    add("--out", default="docs/results", help="folder to write into")
    add("--part", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
