"""Two replicas of `tf.distribute` train as one process does with the whole batch."""

import pathlib

import numpy as np
import pytest
from jobs import run_scripts

pytestmark = pytest.mark.backends("tensorflow", reason="Replicas are TensorFlow's.")


@pytest.fixture(scope="module")
def differences():
    """The largest differences between one process and two replicas, by case."""
    (found,) = run_scripts(pathlib.Path(__file__).with_name("two_replicas.py"), [])
    return found


TRAINED = ("labels, uncertainty", "batch, uncertainty", "averaged, dispatched")
TRAINED += ("routed", "balanced")


@pytest.mark.parametrize(
    ("case", "names"),
    [
        *((case, {"weights", "loss"}) for case in TRAINED),
        # A training that is resumed, records and decides.
        ("callbacks", {"steps", "recorded"}),
        # Experts are chosen once for all replicas.
        ("chosen", {"weights", "changed"}),
    ],
)
def test_weights_and_reports_are_those_of_one_process(differences, case, names):
    found = differences[case]
    assert names <= set(found)
    if case == "batch, uncertainty":
        # Of a batch with one example, Keras counts the replica that has it. The report
        # of a sum over the examples is then that sum times the number of replicas.
        found = {name: value for name, value in found.items() if name != "loss"}
    assert np.max([*found.values()]) < 1e-6


# Values and gradients of sums are those of the batch, penalties that are not linear
# are of each replica's part, and choices beyond a capacity are those of all parts. A
# table with strings has the losses of one process.
@pytest.mark.parametrize("case", ["sums", "penalties", "dropped", "strings"])
def test_sums_and_penalties_are_as_they_should_be(differences, case):
    assert np.max(differences[case]) < 1e-6
