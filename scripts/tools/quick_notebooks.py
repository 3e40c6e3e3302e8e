"""Run the short versions of the notebooks, without a kernel.

    python scripts/tools/quick_notebooks.py

In a short version, lines that begin with "# quick: " count. A short version runs as a
script, and its figures are drawn at the end. One process runs them all, because to
import TensorFlow takes as long as many a short version.
"""

import os
import pathlib
import runpy
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from common.command_line import COMPILE_FAST, choose_backend, make_parser

ROOT = pathlib.Path(__file__).parents[2]


def main(arguments=None):
    """Run the notebooks one by one."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("notebooks", nargs="*", help="notebooks/*.py to run; all if left out")
    add("--out", default=str(ROOT / "build/notebooks"), help="folder to write into")
    options = parser.parse_args(arguments)
    choose_backend("tensorflow")
    os.environ.setdefault("XLA_FLAGS", COMPILE_FAST)
    paths = [pathlib.Path(path).resolve() for path in options.notebooks]
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    os.chdir(options.out)
    for path in paths or sorted(ROOT.glob("notebooks/*.py")):
        print(f"Running {path}", flush=True)
        began = time.process_time()
        run(path)
        print(f"{time.process_time() - began:.0f} CPU seconds", flush=True)


def run(path):
    """Run the short version of a notebook in this folder, and draw its figures."""
    import keras
    from matplotlib import pyplot as plt

    keras.utils.clear_session()
    text = path.read_text(encoding="utf-8").replace("\n# quick: ", "\n")
    pathlib.Path(path.name).write_text(text, encoding="utf-8")
    runpy.run_path(path.name)
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


if __name__ == "__main__":
    main()
