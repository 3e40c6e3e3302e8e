"""Latencies are measured for every method to call a model."""

import dataclasses
import json

import keras
import pytest
import serving_latency

from research.engine import Results
from research.engine.results import NotRunError
from research.papers.mmoe import table3
from research.speed import WORKLOADS

TINY = dataclasses.replace(
    WORKLOADS["W4-static"], input_shape=(6,), num_experts=10, units=5, batch_size=4
)
METHODS = {
    "tensorflow": {"tf.function", "tf.function with XLA", "SavedModel"},
    "jax": {"jax.jit"},
    "torch": set(),
}


@pytest.mark.traced
def test_each_method_is_measured(tmp_path, monkeypatch):
    # Two forms: each is compiled and exported.
    forms = {name: serving_latency.FORMS[name] for name in ("nothing", "dense")}
    monkeypatch.setattr(serving_latency, "FORMS", forms)
    monkeypatch.setitem(WORKLOADS, serving_latency.WORKLOAD, TINY)
    monkeypatch.setattr(serving_latency, "BATCHES", (3,))
    monkeypatch.setattr(serving_latency, "ROUNDS", 1)
    serving_latency.main(["--out", str(tmp_path)])
    (path,) = tmp_path.glob("serving_*.json")
    found = json.loads(path.read_text())["milliseconds"]
    others = {"predict_on_batch", "direct call"}
    assert set(found) == others | METHODS[keras.backend.backend()]
    for times in found.values():
        assert set(times) == {"nothing", "dense"}
        assert all(each["3"] > 0 for each in times.values())


def test_architectures_are_timed_and_judged(tmp_path, monkeypatch):
    for name, value in {"BATCHES": (256,), "ROUNDS": 1, "REPEATS": 3}.items():
        monkeypatch.setattr(serving_latency, name, value)
    serving_latency.main(["--architectures", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("architectures_*.json")
    assert path.name.startswith("architectures_cpu_")
    found = json.loads(path.read_text())["milliseconds"]
    assert set(found) == {"serving", "training"}
    for work, times in found.items():
        assert set(times) == set(table3.ARCHITECTURES)
        assert all(len(each[table3.BATCH[work]]) == 3 for each in times.values())
    # The page reads it, by backend, and judges by each method's share above the first.
    results = Results(table3.Table3(), "cpu", tmp_path)
    backend = keras.backend.backend()
    read = table3.times_of(results, backend, "training")["MMoE"]
    assert list(read) == found["training"]["MMoE"][table3.BATCH["training"]]
    times = {table3.SHARED: [1.0, 2.0, 4.0], "MMoE": [2.0, 4.0, 8.0]}
    times = {name: {table3.BATCH["training"]: each} for name, each in times.items()}
    path.write_text(json.dumps({"milliseconds": {"training": times}}))
    assert table3.slower(results, backend, "training", "MMoE") == (1.0, 0.0, 3)
    with pytest.raises(NotRunError):
        table3.slower(results, "none", "serving", "MMoE")


def test_separate_networks_have_twice_the_kernels():
    experiment = table3.Table3.presets()["paper"]
    # 20 x 256 x 64, and two towers: two networks, but for the towers.
    shared = 20 * 256 + 256 * 64 + 2 * 64
    assert table3.count_kernels(experiment.model(table3.SHARED)) == shared
    ratio = experiment.kernels(table3.L2)
    assert ratio == pytest.approx((2 * shared - 2 * 64) / shared)
