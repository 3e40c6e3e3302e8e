"""The files and jobs of docs/hosts.md run in two processes, and train as one does."""

import ast
import contextlib
import importlib
import json
import os
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import on_host
from jobs import blocks, environment, free_addresses, job, run, run_together

BACKEND = keras.backend.backend()
# Stop all processes once the first has saved the second epoch.
INTERRUPTION = """
import os
import pathlib
import time

save = keras.callbacks.BackupAndRestore.on_epoch_end


def save_and_stop(self, epoch, logs=None):
    save(self, epoch, logs)
    while epoch == 1:
        saved = pathlib.Path("backup/0/training_metadata.json").read_text()
        if '"epoch": 2' in saved:
            os._exit(1)
        time.sleep(0.1)


keras.callbacks.BackupAndRestore.on_epoch_end = save_and_stop
"""


# With one batch per epoch, no order matters. The penalty is a mean over the examples,
# and the loss one over the labels, some of which are missing.
CHANGES = {
    "size=(64,": "size=(32,",
    "TopKGate(num_nonzeros=2)": "TopKGate(num_nonzeros=2, z_reg=0.1)",
    "per_example=True)": 'per_example=True, label_average="labels")',
}
if BACKEND != "torch":  # Each process of torch averages over its own labels.
    returned = "    return x.astype"
    CHANGES[returned] = f"    y[process :: 3 + process, 0] = np.nan\n{returned}"


@pytest.fixture
def folder(tmp_path):
    """A folder with the page's Python files, with some changes."""
    for code in [*blocks("hosts.md", "python"), *blocks("hosts.md", "py")]:
        name = code.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(code)
    module = tmp_path / "my_model.py"
    for old, new in CHANGES.items():
        code = module.read_text()
        assert old in code
        module.write_text(code.replace(old, new))
    return tmp_path


def free_job():
    """A number of a job for which JAX takes a port where nobody listens."""
    for number in range(os.getpid() % 4096, 4096):
        with contextlib.suppress(OSError), socket.socket() as each:
            each.bind(("127.0.0.1", 65535 - 2**12 + 1 + number))
            return str(number)
    raise AssertionError("All ports are in use.")


def assert_trained_as_by_one(folder, monkeypatch):
    """Compare the saved models with one that is trained with the whole batches.

    Returns the losses of its epochs.
    """
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    module = importlib.import_module("my_model")
    alone = module.build()
    x, y = map(np.concatenate, zip(*map(module.rows, range(2)), strict=True))
    log = alone.fit(x, y, batch_size=64, epochs=3, verbose=0)
    for process in range(2):
        other = keras.saving.load_model(folder / f"{process}.keras")
        assert_close(other.get_weights(), alone.get_weights(), atol=1e-5)
    return log.history["loss"]


@pytest.mark.backends("jax", "torch", reason="A test below is TensorFlow's.")
@pytest.mark.skipif(not on_host(), reason="A GPU draws other initial weights.")
def test_a_job_goes_on_after_an_interruption(folder, monkeypatch):
    (address,) = free_addresses(1)
    script = job("hosts.md", f"train_{BACKEND}.py").replace(
        "29500", address.split(":")[1]
    )
    given = environment(
        folder,
        PET_LOCAL_ADDR="127.0.0.1",
        SLURM_JOB_NODELIST="127.0.0.1",
        SLURM_NNODES="1",
        SLURM_NTASKS="2" if BACKEND == "jax" else "1",
        SLURM_STEP_NODELIST="127.0.0.1",
    )

    def run_job(code):
        command = script.replace("--nproc-per-node 4", "--nproc-per-node 2")
        env = given | {"SLURM_JOB_ID": free_job()}
        settings = {"cwd": folder, "env": env, "stderr": subprocess.STDOUT}
        return run("bash", "-c", command, code=code, **settings)

    module = folder / "my_model.py"
    whole = module.read_text()
    module.write_text(whole + INTERRUPTION)
    said = run_job(1)
    module.write_text(whole)
    saved = folder / "backup/0/training_metadata.json"
    assert json.loads(saved.read_text())["epoch"] == 2, said
    run_job(0)
    assert_trained_as_by_one(folder, monkeypatch)


@pytest.mark.traced
@pytest.mark.backends("tensorflow", reason="A test above is theirs.")
def test_two_workers_of_tensorflow_train_as_one(folder, monkeypatch):
    cluster = {"worker": free_addresses(2)}
    configs = [
        {"cluster": cluster, "task": {"type": "worker", "index": index}}
        for index in range(2)
    ]
    command = sys.executable, "train_tensorflow.py"
    printed = run_together(
        *(
            (command, {"cwd": folder, "env": environment(folder, TF_CONFIG=each)})
            for each in map(json.dumps, configs)
        )
    )
    wanted = assert_trained_as_by_one(folder, monkeypatch)
    for each in printed:
        losses = [ast.literal_eval(line)["loss"] for line in each.splitlines()]
        assert_close(losses, wanted, rtol=1e-5)
