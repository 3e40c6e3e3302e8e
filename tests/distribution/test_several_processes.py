"""Several devices and processes train as one does with the whole batch."""

import pathlib

import keras
import numpy as np
import pytest
from jobs import free_addresses, run_scripts

HERE = pathlib.Path(__file__).parent
BACKEND, AXES = keras.backend.backend(), ("data", "experts")


def run(script, *calls):
    return run_scripts(HERE / script, *calls)


def difference(a, b):
    pairs = zip([*a["weights"], a["loss"]], [*b["weights"], b["loss"]], strict=True)
    return max(np.abs(np.subtract(*pair)).max() for pair in pairs)


@pytest.fixture(scope="module")
def eight():
    if BACKEND != "jax":
        pytest.skip("`keras.distribution` is JAX's.")
    (found,) = run("eight_devices.py", [])
    return found


TRAINED = [f"{case}, {by}" for case in ("narrow", "dispatched") for by in AXES]


@pytest.mark.parametrize("case", [*TRAINED, "wide, experts"])
def test_eight_devices_train_as_one(eight, case):
    assert eight[case]["weights"] <= 2e-6
    assert eight[case]["loss"] <= 2e-6


@pytest.mark.parametrize("case", ["narrow", "wide", "dispatched"])
def test_no_device_holds_or_gets_the_experts_of_others(eight, case):
    # Eight experts over an axis of four devices, their momentum included.
    assert set(eight[f"{case}, experts"]["held"]) == {2}
    assert eight[f"{case}, experts"]["moved"] == 0


@pytest.mark.parametrize("devices", ["data", "other experts"])
def test_a_resumed_training_records_decides_and_stops_as_on_one_device(eight, devices):
    found = eight[f"watched, {devices}"]
    assert {"binary", "best", "recorded", "predicted"} <= set(found)
    assert np.max([*found.values()]) <= 2e-6


def test_split_experts_are_not_condensed(eight):
    assert "Fewer experts may not fill the devices" in eight["refused"]


@pytest.mark.parametrize("devices", AXES)
@pytest.mark.parametrize("dispatch", [False, True])
def test_a_step_needs_what_was_planned(eight, devices, dispatch):
    found = eight[f"needed, {devices}, {dispatch}"]
    state, planned = found["state"]
    assert 0 <= state - planned <= 60  # Steps, metrics and seeds.
    # The plan leaves out what is small, and copies. XLA may need a little less.
    ratio = {name: real / planned for name, (real, planned) in found.items()}
    assert 0.99 <= ratio["sent"] <= 1.1
    assert 0.99 <= ratio["activations"] <= 1.7


def test_devices_share_the_operations_of_dispatch(eight):
    assert 1 / 8 <= eight["capacity"]["operations"] <= 1.3 / 8


def test_each_device_dispatches_its_part_of_the_batch(eight):
    one, several = eight["capacity"]["dropped"]
    assert several == one > 0
    assert eight["capacity"]["predicted"] <= 2e-6


def test_two_processes_of_jax_train_as_one(eight):
    (address,) = free_addresses(1)
    for found in run("eight_devices.py", [address, "0"], [address, "1"]):
        assert difference(found, eight["alone"]) <= 2e-6
        assert "spans non-addressable" in found["refused"]
