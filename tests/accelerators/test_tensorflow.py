"""Operations that a GPU would refuse, or compute on the host, on TensorFlow."""

import pathlib

import numpy as np
import pytest
from jobs import run_scripts

from common.command_line import COMPILE_FAST

SCRIPT = pathlib.Path(__file__).with_name("two_devices.py")
pytestmark = pytest.mark.backends(
    "tensorflow", reason="The others have one kind of int."
)


# XLA takes less time for four models than for their sum. Each process trains two.
@pytest.mark.parametrize("firsts", [("0", "2"), ("1", "3")])
def test_every_part_trains_with_xla_beside_variables_of_the_host(firsts):
    (models,) = run_scripts(SCRIPT, ["4", *firsts], XLA_FLAGS=COMPILE_FAST)
    assert len(models) == 2
    for found in models:
        assert len(found["differences"]) > 10
        assert np.isfinite(found["losses"]).all()
        assert found["losses"][1] < found["losses"][0]
        assert found["steps"] == [2]
        # Predictions are those without XLA, whose kernels round otherwise.
        assert {k: v for k, v in found["differences"].items() if not v < 1e-5} == {}
        # No integers are computed on the host.
        assert found["on the host"] == []
