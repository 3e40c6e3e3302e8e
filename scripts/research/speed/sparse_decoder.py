"""Measure the blocks of docs/decoder.md: time and memory of all and of chosen experts.

    python scripts/research/speed/sparse_decoder.py --backend jax --out docs/results

Each number is of a fresh process with one thread. Time is that of the processor, the
least of several calls; memory is by how much two calls let the process grow.
"""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2]))

from common.command_line import add_backend, choose_backend, make_parser

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "decoder.md"
COMMAND = "python scripts/research/speed/sparse_decoder.py"
EXPERTS, CHOSEN, WIDTH, HIDDEN, LENGTH, BATCH_SIZE = 64, 8, 256, 128, 256, 4
FORMS, KINDS = ("all experts", "chosen experts"), ("predict", "fit")
CLEAR, STATUS = pathlib.Path("/proc/self/clear_refs"), pathlib.Path("/proc/self/status")


def make_model(form):
    """Create a model of one block, as the page has it."""
    import keras

    page = {}
    text = PAGE.read_text(encoding="utf-8")
    exec("".join(re.findall(r"(?s)```python\n(.*?)```", text)), page)
    if form == "all experts":
        block = page["AllExperts"](EXPERTS, HIDDEN, CHOSEN)
    else:
        block = page["sparse_block"](EXPERTS, WIDTH, HIDDEN, CHOSEN)
    inputs = keras.Input((LENGTH, WIDTH))
    model = keras.Model(inputs, block(inputs))
    model.compile("sgd", "mse")
    return model


def kilobytes(name):
    """A number of the process in /proc."""
    return int(re.findall(rf"{name}:\s+(\d+)", STATUS.read_text(encoding="ascii"))[0])


def measure(form, kind, repeats):
    """Measure one way to call one block, in this process."""
    import numpy as np

    model = make_model(form)
    x = np.random.default_rng(0).normal(size=(BATCH_SIZE, LENGTH, WIDTH))
    x = x.astype("float32")

    def call():
        if kind == "fit":
            model.train_on_batch(x, x)
        else:
            model.predict_on_batch(x)

    CLEAR.write_text("5", encoding="ascii")  # The peak is the present from here on.
    before = kilobytes("VmRSS")
    call()
    call()
    grown = kilobytes("VmHWM") - before
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return {"milliseconds": 1e3 * min(seconds), "megabytes": grown / 1024}


def main(arguments=None):
    """Measure each form in a process of its own, and write the numbers."""
    parser = make_parser(__doc__)
    add_backend(parser)
    parser.add_argument("--out", default="runs/decoder", help="output folder")
    parser.add_argument("--repeats", type=int, default=5, help="calls to time")
    parser.add_argument("--one", nargs=2, metavar=("FORM", "KIND"), help="in here")
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    if options.one:
        form, kind = options.one
        print(json.dumps(measure(form, kind, options.repeats)))
        return
    one = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
    one |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    found = {}
    for form in FORMS:
        for kind in KINDS:
            command = [sys.executable, __file__, "--repeats", str(options.repeats)]
            done = subprocess.run(
                [*command, "--one", form, kind],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env=os.environ | one,
            )
            numbers = json.loads(done.stdout.splitlines()[-1])
            found.setdefault(form, {})[kind] = numbers
            print(form, kind, numbers, flush=True)
    results = {
        "command": f"{COMMAND} --backend {options.backend}",
        "sizes": [EXPERTS, CHOSEN, WIDTH, HIDDEN, LENGTH, BATCH_SIZE],
        "machine": f"{platform.machine()}, one thread",
        "forms": found,
    }
    from common.files import write_json

    write_json(pathlib.Path(options.out) / f"decoder_{options.backend}.json", results)


if __name__ == "__main__":
    sys.exit(main())
