"""Seconds a seed: many copies in one program, against one plain run after another."""

import statistics
import time

import keras

from dselectk_keras import datasets, replicate
from dselectk_keras.batches import Batches
from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates import DSelectKGate
from dselectk_keras.layers import MoE
from research.speed.workload import WORKLOADS

BATCH_SIZE, COPIES, ROUNDS = 256, 32, 3


def _recovery(_):
    """The model of Appendix C.2.2: 16 frozen experts of 4 units, a logistic unit."""
    experts = DenseExperts(16, [4])
    experts.trainable = False
    inputs = keras.Input((10,))
    mixture = MoE(experts, DSelectKGate(4, entropy_reg=1e-3))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(mixture))
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
    return model


SHAPES = {
    "C.2.2": (_recovery, datasets.expert_recovery, 50),
    "W2": (lambda seed: WORKLOADS["W2"].model("bank", seed), None, 20),
}


def measure_replicate(name, progress=lambda _: None):
    """Seconds of a plain run, of one that is compiled already, and of a copy."""
    build, load, epochs = SHAPES[name]
    data = load() if load else datasets.synthetic_moe(128, 20_000, 5_000, 5_000)
    settings = {"epochs": epochs, "verbose": 0}
    found = {"plain": [], "again": [], "copy": []}
    for turn in range(ROUNDS):
        progress(f"turn {turn + 1} of {ROUNDS}")
        keras.utils.set_random_seed(turn)
        times, model = [time.perf_counter()], build(turn)
        for _ in range(2):
            batches = Batches(data.train, BATCH_SIZE, turn)
            model.fit(batches, shuffle=False, **settings)
            times.append(time.perf_counter())
        seeds = range(COPIES)
        replicate(build, data.train, seeds=seeds, batch_size=BATCH_SIZE, **settings)
        times.append(time.perf_counter())
        for kind, before, after in zip(found, times[:-1], times[1:], strict=True):
            found[kind].append((after - before) / (COPIES if kind == "copy" else 1))
    result = {f"{key}_seconds": statistics.median(v) for key, v in found.items()}
    for key in ("plain", "again"):
        pairs = zip(found["copy"], found[key], strict=True)
        result[f"copy_of_{key}"] = statistics.median(a / b for a, b in pairs)
    return {**result, "copies": COPIES, "epochs": epochs}
