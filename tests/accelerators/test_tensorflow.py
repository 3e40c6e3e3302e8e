"""Operations that a GPU would refuse, or compute on the host, on TensorFlow."""

import pathlib

import keras
import numpy as np
import pytest
from checks import assert_close
from command_line import COMPILE_FAST
from jobs import run_scripts

SCRIPT = pathlib.Path(__file__).with_name("two_devices.py")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="The others have one kind of int."
)
# So that none takes a minute. XLA takes less time for four models than for their sum.
SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
def test_every_part_trains_with_xla_beside_variables_of_the_host(share):
    (found,) = run_scripts(SCRIPT, [str(share), str(SHARES)], XLA_FLAGS=COMPILE_FAST)
    assert len(found["differences"]) > 10
    # Training, with batches of two sizes.
    assert np.isfinite(found["losses"]).all()
    assert found["losses"][1] < found["losses"][0]
    assert found["steps"] == [4]
    # Predicting and evaluating as without XLA, whose kernels round otherwise.
    assert {k: v for k, v in found["differences"].items() if not v < 1e-5} == {}
    assert_close(*found["evaluated"], rtol=1e-5)
    # Computing no integers on the host.
    assert found["on the host"] == []
