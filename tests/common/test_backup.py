"""A backup is the last epoch or the one before it, whenever the process ends."""

import os
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from helpers import numpy
from jobs import run_python

from common.backup import Backup

X = np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)


def make_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), loss="mse")
    return model


def train(folder, epochs):
    model, backup = make_model(), Backup(folder)
    done = backup.restore(model)
    options = {"initial_epoch": done, "epochs": epochs, "verbose": 0}
    model.fit(X, X[:, :1], shuffle=False, callbacks=[backup], **options)
    return done, [numpy(each) for each in (*model.weights, *model.optimizer.variables)]


def test_a_training_goes_on_with_the_epoch_weights_and_optimizer_of_its_backup(
    tmp_path,
):
    keras.utils.set_random_seed(0)
    assert train(tmp_path / "parts", 2)[0] == 0
    keras.utils.set_random_seed(1)  # The initial weights are those of the backup.
    done, parts = train(tmp_path / "parts", 4)
    keras.utils.set_random_seed(0)
    _, whole = train(tmp_path / "whole", 4)
    assert done == 2
    for one, other in zip(parts, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    files = [path.name for path in (tmp_path / "parts").iterdir()]
    assert files == ["000004.weights.h5"]
    assert train(tmp_path / "parts", 4)[0] == 4  # Nothing is left to do.


def test_a_damaged_backup_is_named(tmp_path):
    (tmp_path / "000003.weights.h5").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"000003\.weights\.h5 is damaged or was not"):
        Backup(tmp_path).restore(make_model())


# Kills a training before each of its writes, and resumes it.
KILLS = """
import os, signal, sys
sys.modules["tensorflow"] = None
import keras
from test_backup import train
CHANGES = "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"
def count_writes(folder, kill_at):
    count = 0
    def note(event, arguments):
        nonlocal count
        # A file that is opened for reading has no flag to create it.
        if event in CHANGES and str(arguments[0]).startswith(folder):
            if event != "open" or arguments[2] & os.O_CREAT:
                count += 1
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(note)
    return lambda: count
def attempt(folder, kill_at):
    pid = os.fork()
    if not pid:
        keras.utils.set_random_seed(0)
        count = count_writes(folder, kill_at)
        _, state = train(folder, 2)
        print(kill_at, count(), [each.tolist() for each in state], flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
attempt(sys.argv[1], 0)
for kill_at in range(1, int(sys.argv[2])):
    attempt(f"{sys.argv[1]}_{kill_at}", kill_at)
    attempt(f"{sys.argv[1]}_{kill_at}", -1)
"""


@pytest.mark.backend_independent
def test_a_training_that_is_killed_at_any_write_ends_as_one_that_is_not(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    given = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    command = "-c", KILLS, tmp_path / "run", "8"
    printed = run_python(*command, env=os.environ | given)
    whole, *others = [line.split(" ", 2) for line in printed.splitlines()]
    # In each of two epochs: the folder, the name of the file, and the part that is no
    # more. In the second, also the file before.
    assert whole[:2] == ["0", "7"]
    assert [at for at, *_ in others] == ["-1"] * 7  # Each other one was killed.
    assert {state for *_, state in others} == {whole[2]}
