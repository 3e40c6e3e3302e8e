"""Run the short versions of the notebooks, without a kernel.

    python scripts/quick_notebooks.py

In a short version, lines that begin with "# quick: " count. A short version runs as a
script, and its figures are drawn at the end. Importing TensorFlow takes as long as many
a short version, so that one process imports it, and runs each in a fork of its own.
"""

import importlib
import os
import pathlib
import runpy
import sys

from command_line import COMPILE_FAST, choose_backend, make_parser

ROOT = pathlib.Path(__file__).parents[1]
# What most notebooks import. None of it may start threads, which a fork would not have.
IMPORTED = ("dselectk_keras", "matplotlib.pyplot", "pandas")


def main(arguments=None):
    """Run the notebooks, some at a time; say which have failed."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("notebooks", nargs="*", help="notebooks/*.py to run; all if left out")
    add("--workers", type=int, default=1, help="how many to run at a time")
    add("--out", default=str(ROOT / "build/notebooks"), help="folder to write into")
    options = parser.parse_args(arguments)
    paths = list(map(pathlib.Path, options.notebooks))
    paths = paths or sorted(ROOT.glob("notebooks/*.py"))
    choose_backend("tensorflow")
    os.environ.setdefault("XLA_FLAGS", COMPILE_FAST)
    for name in IMPORTED:
        importlib.import_module(name)
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    running, failed = {}, []
    while paths or running:
        if paths and len(running) < options.workers:
            path = paths.pop(0)
            text = path.read_text(encoding="utf-8").replace("\n# quick: ", "\n")
            (out / path.name).write_text(text, encoding="utf-8")
            sys.stdout.flush()
            if process := os.fork():
                running[process] = path
                continue
            run(out, path.name)
            sys.exit()
        process, status, used = os.wait4(-1, 0)
        path = running.pop(process)
        print((out / path.with_suffix(".txt").name).read_text(encoding="utf-8"))
        seconds = used.ru_utime + used.ru_stime
        print(f"{path}: {'failed' if status else 'passed'}, {seconds:.0f} CPU seconds")
        failed += [str(path)] * bool(status)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


def run(folder, name):
    """Run a script in its folder, draw its figures, and keep what it says in a file."""
    os.chdir(folder)
    with pathlib.Path(name).with_suffix(".txt").open("w", encoding="utf-8") as said:
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
    runpy.run_path(name)
    from matplotlib import pyplot as plt

    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()


if __name__ == "__main__":
    main()
