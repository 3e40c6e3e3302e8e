"""Two replicas of `tf.distribute` train as one process does with the whole batch."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

SCRIPT = pathlib.Path(__file__).with_name("two_replicas.py")

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="Replicas are TensorFlow's."
)


@pytest.fixture(scope="module")
def differences():
    """The largest differences between one process and two replicas, by case."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), *sys.path]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_sums_over_replicas_have_the_values_and_gradients_of_the_batch(differences):
    assert np.max(differences["sums"]) < 1e-6


def test_penalties_that_are_not_linear_are_of_each_replicas_part(differences):
    assert np.max(differences["penalties"]) < 1e-6


@pytest.mark.parametrize(
    "case",
    [
        "labels, uncertainty",
        "batch, uncertainty",
        "averaged, dispatched",
        "routed",
        "balanced",
    ],
)
def test_weights_and_reports_are_those_of_one_process(differences, case):
    found = differences[case]
    assert {"weights", "loss"} <= set(found)
    if case == "batch, uncertainty":
        # Of a batch with one example, Keras counts the replica that has it. The report
        # of a sum over the examples is then that sum times the number of replicas.
        found = {name: value for name, value in found.items() if name != "loss"}
    assert np.max([*found.values()]) < 1e-6


def test_a_resumed_training_records_and_decides_as_one_process(differences):
    found = differences["callbacks"]
    assert {"steps", "recorded"} <= set(found)
    assert np.max([*found.values()]) < 1e-6


def test_experts_are_chosen_once_for_all_replicas(differences):
    found = differences["chosen"]
    assert {"weights", "changed"} <= set(found)
    assert np.max([*found.values()]) < 1e-6
