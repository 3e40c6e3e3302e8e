"""Kill trainings at random moments, resume them, and write what was lost.

    python scripts/tools/fault_injection.py

compares each training with one that was not killed, on each backend, and writes the
table of docs/reliability.md. The trainings are those of `scripts/train.py --resume`.
"""

import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from common.command_line import choose_backend, make_parser

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reliability.md"
MARK = "<!-- Written by scripts/tools/fault_injection.py -->\n"
BACKENDS = ("torch", "jax", "tensorflow")
EPOCHS = 10
LIMIT = 300  # Seconds of a training, which takes a few.
# Events of `sys.addaudithook` that change files.
CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")


def main(arguments=None):
    """Inject the faults, print the table, and write it into the page."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=6, help="kills at random moments, per backend")
    add("--writes", type=int, default=6, help="kills at random writes, per backend")
    add("--backend", choices=BACKENDS, help="only this backend, without a page")
    add("--seed", type=int, default=0, help="seed of the moments")
    add("--train", nargs=2, metavar=("FOLDER", "WRITE"), help="a training, in here")
    options = parser.parse_args(arguments)
    if options.train:
        choose_backend(options.backend)
        if options.backend != "tensorflow":
            # Keras would import it in each training, for nothing.
            sys.modules["tensorflow"] = None  # pyright: ignore[reportArgumentType]
        folder, write = options.train
        count = count_writes(folder, kill_at=int(write))
        print(train(pathlib.Path(folder)), count())
        return
    lines = ["| fault | injected | lost |", "| --- | --- | --- |"]
    for backend in [options.backend] if options.backend else BACKENDS:
        for fault, count, lost in on_backend(backend, options):
            lines.append(f"| {fault}, {backend} | {count} | {lost or 'nothing'} |")
    table = "\n".join(lines)
    print(table)
    if not options.backend:
        from common.files import write_whole

        before, _, after = PAGE.read_text(encoding="utf-8").split(MARK)
        write_whole(PAGE, f"{before}{MARK}\n{table}\n\n{MARK}{after}")


def on_backend(backend, options):
    """Kill trainings: rows of fault, number of kills, and trainings that were lost."""
    draw = random.Random(f"{options.seed}, {backend}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        whole, seconds = attempt(backend, root / "whole")
        wanted, writes = whole.split()

        def lost(name, count, fault):
            """Count the trainings that do not end as one without a kill."""
            found = []
            while count:
                run, result = root / f"{name}_{len(found)}", None
                while result is None:
                    result, _ = attempt(backend, run, **(fault() if count else {}))
                    count -= result is None
                found.append(result.partition(" ")[0])
            return sum(result != wanted for result in found)

        kills = lost("kill", options.kills, lambda: {"after": draw.uniform(0, seconds)})
        during = lost(
            "write", options.writes, lambda: {"write": draw.randint(1, int(writes))}
        )
    return [
        ("kill -9 at a random moment", options.kills, kills),
        ("kill -9 at a random write", options.writes, during),
    ]


def attempt(backend, folder, after=None, write=0):
    """Start or resume a training in another process, and perhaps kill it.

    It is killed after some seconds, or kills itself before the write of that number.
    Returns what it ended with and its number of writes, None if it was killed, or "" if
    it could not be resumed; and the seconds that it took.
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
    if code and not folder.exists():
        raise RuntimeError(f"A training ended with the code {code}.")
    return "" if code else digest.decode().strip(), seconds


def count_writes(folder, kill_at=0):
    """Count what changes files in a folder, and perhaps kill this process before it.

    Returns a function that returns the count.
    """
    count = 0

    def note(event, arguments):
        nonlocal count
        if event not in CHANGES or not str(arguments[0]).startswith(str(folder)):
            return
        # A file that is opened for reading has no flag to create it.
        if event != "open" or arguments[2] & os.O_CREAT:
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(note)
    return lambda: count


def train(folder):
    """Train a small model to the end, and return a digest of all it ended with."""
    import keras
    import numpy as np

    from common.training_run import TrainingRun
    from dselectk_keras import GateHistory

    sizes = {"num_train": 96, "num_validation": 32, "num_test": 32, "input_dim": 8}
    run = TrainingRun(
        data="correlated_tasks",
        data_options=sizes,
        entropy=(0.01, 0.1),
        num_nonzeros=2,
        decide_by=0.4,
        num_experts=4,
        units=(8,),
        epochs=EPOCHS,
        batch_size=32,
    )
    print("training", flush=True)
    results = run.run(folder, progress=False, resume=True)
    model = keras.saving.load_model(folder / "model.keras")
    history = GateHistory.load(folder / "gate_history.npz")
    shown = [results[name] for name in ("curve", "gates", "test")], history.events
    digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode())
    for variable in [*model.variables, *model.optimizer.variables]:
        digest.update(np.array(keras.ops.convert_to_numpy(variable)).tobytes())
    digest.update(history.steps.tobytes())
    for name, array in history["mmoe"].items():
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
