"""Kill trainings at random moments, resume them, and write what was lost.

    python scripts/fault_injection.py --kills 54

compares each training with one that was not killed, and writes the table of
docs/reliability.md.
"""

import hashlib
import json
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from command_line import make_parser

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "reliability.md"
MARK = "<!-- Written by scripts/fault_injection.py -->\n"
BACKENDS = ("torch", "jax", "tensorflow")
EPOCHS = 10
LIMIT = 300  # Seconds of a training, which takes a few.
# With one thread, trainings are not slowed down by what else runs.
QUIET = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def main(arguments=None):
    """Inject the faults, print the table, and write it into the page."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add(
        "--kills", type=int, default=54, help="kills at random moments, of all backends"
    )
    add("--writes", type=int, default=3, help="kills while a history is written")
    add("--files", type=int, default=300, help="alterations of a history's file")
    add("--backend", choices=BACKENDS, help="only this backend, without a page")
    add("--seed", type=int, default=0, help="seed of the moments")
    options = parser.parse_args(arguments)
    if options.backend is None:
        return of_all_backends(options)
    os.environ.update(KERAS_BACKEND=options.backend, **QUIET)
    if options.backend != "tensorflow":
        # Keras would import it in each training, for nothing.
        sys.modules["tensorflow"] = None  # pyright: ignore[reportArgumentType]
    # Before the forks. Nothing may be computed before them.
    import dselectk_keras  # noqa: F401

    draw = random.Random(f"{options.seed}, {options.backend}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        rows = kill(root, options.backend, options.kills, options.writes, draw)
        rows.append(alter(root, options.backend, options.files, draw))
    print(json.dumps(rows))
    return None


def of_all_backends(options):
    """Inject the faults on each backend, and write the table into the page."""
    rows = []
    for place, backend in enumerate(BACKENDS):
        kills = (options.kills + len(BACKENDS) - 1 - place) // len(BACKENDS)
        command = [sys.executable, __file__, "--backend", backend]
        for name in ("writes", "files", "seed"):
            command += [f"--{name}", str(getattr(options, name))]
        command += ["--kills", str(kills)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows += json.loads(done.stdout.splitlines()[-1])
    lines = ["| fault | injected | lost |", "| --- | --- | --- |"]
    lines += [f"| {fault} | {times} | {lost} |" for fault, times, lost in rows]
    table = "\n".join(lines)
    print(table)
    before, _, after = PAGE.read_text(encoding="utf-8").split(MARK)
    PAGE.write_text(f"{before}{MARK}\n{table}\n\n{MARK}{after}", encoding="utf-8")
    return 0 if all(lost == "nothing" for _, _, lost in rows) else 1


def kill(folder, backend, kills, writes, draw):
    """Kill trainings on a backend until there were so many kills of each kind.

    Returns:
        Rows of the table.
    """
    wanted, seconds = attempt(folder / "whole")
    print(f"{backend}: {seconds:.1f} s without a fault", file=sys.stderr)
    counts = {"at a random moment": kills, "while a history is written": writes}
    rows = []
    for moment, count in counts.items():
        done = number = 0
        ends = {"ended otherwise": 0, "Keras could not read its backup": 0}
        while done < count:
            number += 1
            found = None
            run = folder / f"{moment}_{number}"
            while found is None:
                fault = {}
                if done < count and moment == "at a random moment":
                    fault = {"after": draw.uniform(0, seconds)}
                elif done < count:
                    fault = {"write": draw.randrange(1, EPOCHS)}
                found, _ = attempt(run, **fault)
                done += found is None
            # Keras writes a backup in place, in two files.
            if found != wanted:
                ends[[*ends][not found]] += 1
            print(f"{backend}: {done} of {count} kills {moment}", file=sys.stderr)
        lost = "; ".join(f"{many}: {end}" for end, many in ends.items() if many)
        rows.append((f"kill -9 {moment}, {backend}", done, lost or "nothing"))
    return [row for row in rows if row[1]]


def attempt(folder, after=None, write=None):
    """Start or resume a training in another process, and perhaps kill it.

    Args:
        folder: The folder of the training.
        after: Seconds from the beginning of the training to the kill.
        write: The number of the write in which the process kills itself.

    Returns:
        What the training ended with, None if it was killed, or "" if its backup could
        not be read; and its seconds.
    """
    # A fork, because a new process would import the backend for seconds.
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(LIMIT)
        os.close(reader)
        status = 1
        try:
            train(folder, write, lambda text: os.write(writer, f"{text}\n".encode()))
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as lines:
        lines.readline()
        began = time.monotonic()
        if after is not None and not select.select([lines], [], [], after)[0]:
            os.kill(child, signal.SIGKILL)
        output = lines.read()
        seconds = time.monotonic() - began
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        return None, seconds
    if code == -signal.SIGALRM:
        raise RuntimeError(f"A training took more than {LIMIT} seconds.")
    if code and (folder / "backup").exists():
        return "", seconds
    if code:
        raise RuntimeError(f"A training ended with the code {code}.")
    return output.split()[-1], seconds


def altered(content, draw):
    """A copy of some bytes that is truncated, longer, or has another bit."""
    kind = draw.randrange(3)
    if kind == 0:
        return content[: draw.randrange(len(content))]
    if kind == 1:
        return content + draw.randbytes(draw.randrange(1, 100))
    changed = bytearray(content)
    changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def alter(folder, backend, count, draw):
    """Alter files of gate histories, and see that none is read as something else."""
    import numpy as np

    from dselectk_keras import GateHistory

    history = GateHistory({"mmoe": ["a"]})
    history.append(0, {"mmoe": {"weights": np.full((1, 4), 0.25)}})
    path = folder / "history.npz"
    history.save(path)
    content = path.read_bytes()
    wrong = 0
    for _ in range(count):
        path.write_bytes(altered(content, draw))
        try:
            weights = GateHistory.load(path)["mmoe"]["weights"]
            wrong += not np.array_equal(weights, history["mmoe"]["weights"])
        except ValueError as error:
            wrong += str(path) not in str(error)
    lost = f"{wrong} were read as something else" if wrong else "nothing"
    return f"file of a gate history altered, {backend}", count, lost


def train(folder, write, report):
    """Train a small model to the end, and report a digest of all it ended with."""
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
    report("training")
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
    shutil.rmtree(folder)
    report(digest.hexdigest())


if __name__ == "__main__":
    sys.exit(main())
