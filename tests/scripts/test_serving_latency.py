"""Latencies are measured in every way to call a model."""

import dataclasses
import json

import keras
import pytest
import serving_latency

from benchmarks import WORKLOADS

TINY = dataclasses.replace(
    WORKLOADS["W4-static"], input_shape=(6,), num_experts=10, units=5, batch_size=4
)
WAYS = {
    "tensorflow": {"tf.function", "tf.function with XLA", "SavedModel"},
    "jax": {"jax.jit"},
    "torch": set(),
}


@pytest.mark.traced
def test_each_way_is_measured(tmp_path, monkeypatch):
    # Two forms: each is compiled and exported.
    forms = {name: serving_latency.FORMS[name] for name in ("nothing", "dense")}
    monkeypatch.setattr(serving_latency, "FORMS", forms)
    monkeypatch.setitem(WORKLOADS, "tiny", TINY)
    arguments = ["--workload", "tiny", "--batches", "3", "--rounds", "1"]
    serving_latency.main([*arguments, "--out", str(tmp_path)])
    (path,) = tmp_path.glob("serving_*.json")
    found = json.loads(path.read_text())["milliseconds"]
    others = {"predict_on_batch", "direct call"}
    assert set(found) == others | WAYS[keras.backend.backend()]
    for times in found.values():
        assert set(times) == {"nothing", "dense"}
        assert all(each["3"] > 0 for each in times.values())
