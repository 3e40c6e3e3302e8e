"""What a GPU would refuse, or compute on the host, on TensorFlow."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from command_line import COMPILE_FAST

SCRIPT = pathlib.Path(__file__).with_name("two_devices.py")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="The others have one kind of int."
)


# One test, whose three parts would else be run by several workers.
def test_every_part_trains_with_xla_beside_variables_of_the_host():
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), *sys.path]),
        "CUDA_VISIBLE_DEVICES": "",
        "XLA_FLAGS": COMPILE_FAST,
    }
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    # Training, with batches of two sizes.
    assert np.isfinite(found["losses"]).all()
    assert found["losses"][1] < found["losses"][0]
    assert found["steps"] == [4]
    # Predicting and evaluating as without XLA, whose kernels round otherwise.
    assert {k: v for k, v in found["differences"].items() if not v < 1e-5} == {}
    np.testing.assert_allclose(*found["evaluated"], rtol=1e-5)
    # Computing no integers on the host.
    assert found["on the host"] == []
