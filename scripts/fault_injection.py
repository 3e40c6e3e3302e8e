"""Kill trainings at random moments, resume them, and write what was lost.

    python scripts/fault_injection.py

compares each training with one that was not killed, on each backend, and writes the
table of docs/reliability.md.
"""

import hashlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from command_line import choose_backend, make_parser

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "reliability.md"
MARK = "<!-- Written by scripts/fault_injection.py -->\n"
BACKENDS = ("torch", "jax", "tensorflow")
EPOCHS = 10
LIMIT = 300  # Seconds of a training, which takes a few.


def main(arguments=None):
    """Inject the faults, print the table, and write it into the page."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=6, help="kills at random moments, per backend")
    add("--writes", type=int, default=3, help="kills while a history is written")
    add("--backend", choices=BACKENDS, help="only this backend, without a page")
    add("--seed", type=int, default=0, help="seed of the moments")
    add("--train", nargs=2, metavar=("FOLDER", "WRITE"), help="a training, in here")
    options = parser.parse_args(arguments)
    if options.train:
        choose_backend(options.backend)
        if options.backend != "tensorflow":
            # Keras would import it in each training, for nothing.
            sys.modules["tensorflow"] = None  # pyright: ignore[reportArgumentType]
        train(pathlib.Path(options.train[0]), int(options.train[1]))
        return
    lines = ["| fault | injected | lost |", "| --- | --- | --- |"]
    for backend in [options.backend] if options.backend else BACKENDS:
        for fault, count, lost in on_backend(backend, options):
            lines.append(f"| {fault}, {backend} | {count} | {lost or 'nothing'} |")
    table = "\n".join(lines)
    print(table)
    if not options.backend:
        before, _, after = PAGE.read_text(encoding="utf-8").split(MARK)
        PAGE.write_text(f"{before}{MARK}\n{table}\n\n{MARK}{after}", encoding="utf-8")


def on_backend(backend, options):
    """Kill trainings: rows of fault, number of kills, and trainings that were lost."""
    draw = random.Random(f"{options.seed}, {backend}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        wanted, seconds = attempt(backend, root / "whole")

        def lost(name, count, fault):
            """How many trainings do not end as one without a kill."""
            found = []
            while count:
                run, result = root / f"{name}_{len(found)}", None
                while result is None:
                    result, _ = attempt(backend, run, **(fault() if count else {}))
                    count -= result is None
                found.append(result)
            return sum(result != wanted for result in found)

        kills = lost("kill", options.kills, lambda: {"after": draw.uniform(0, seconds)})
        writes = lost(
            "write", options.writes, lambda: {"write": draw.randrange(1, EPOCHS)}
        )
    return [
        ("kill -9 at a random moment", options.kills, kills),
        ("kill -9 while a history is written", options.writes, writes),
    ]


def attempt(backend, folder, after=None, write=0):
    """Start or resume a training in another process, and perhaps kill it.

    It is killed after some seconds, or kills itself in the write of that number.
    Returns what it ended with, None if it was killed, or "" if its backup could not be
    read; and the seconds that it took.
    """
    command = [sys.executable, __file__, "--backend", backend]
    command += ["--train", str(folder), str(write)]
    # With one thread, trainings are not slowed down by what else runs.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    # Without a buffer, in which the end of the training could be left.
    with subprocess.Popen(
        command, bufsize=0, env=environment, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()  # The training begins.
        began = time.monotonic()
        try:
            digest, _ = child.communicate(timeout=LIMIT if after is None else after)
        except subprocess.TimeoutExpired:
            child.kill()
            if after is None:
                raise
            digest, _ = child.communicate()
    seconds, code = time.monotonic() - began, child.returncode
    if code == -signal.SIGKILL:
        return None, seconds
    if code and not (folder / "backup").exists():
        raise RuntimeError(f"A training ended with the code {code}.")
    return "" if code else digest.decode().strip(), seconds


def train(folder, write):
    """Train a small model to the end, and print a digest of all it ended with."""
    import keras
    import numpy as np

    import dselectk_keras as dk

    savez, calls = np.savez_compressed, iter(range(10**9))

    def save(file, *arrays, **named):
        savez(file, *arrays, **named)
        if write and next(calls) == write:
            file.truncate(file.tell() // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    np.savez_compressed = save
    keras.utils.set_random_seed(0)
    draws = np.random.default_rng(0).normal(size=(2, 1024, 4)).astype("float32")
    x, y = draws[0], draws[1, :, :2]
    model = dk.build_multitask_model(
        4,
        2,
        experts=dk.DenseExperts(8, [8, 4]),
        gate=dk.DSelectKGate(1, gamma=dk.Ramp(1.0, 0.5, end=200), entropy_reg=0.01),
    )
    model.compile(keras.optimizers.Adam(0.01))
    recorder = dk.GateRecorder(every=20, path=folder / "gates.npz")
    backup = keras.callbacks.BackupAndRestore(folder / "backup", double_checkpoint=True)
    print("training", flush=True)
    model.fit(
        *(x, y, 32),
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=[recorder, dk.DecideGates(0.4), backup],
    )
    digest = hashlib.sha256(repr(recorder.history.events).encode())
    for variable in [*model.variables, *model.optimizer.variables]:
        digest.update(np.array(keras.ops.convert_to_numpy(variable)).tobytes())
    digest.update(recorder.history.steps.tobytes())
    for name, array in recorder.history["mmoe"].items():
        digest.update(name.encode() + array.tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
