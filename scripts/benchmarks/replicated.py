"""Seconds a seed: many copies in one program, against one plain run after another."""

import statistics
import time

import keras

from benchmarks.forms import new_model
from benchmarks.workload import WORKLOADS
from dselectk_keras import Batches, datasets, replicate
from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates import DSelectKGate
from dselectk_keras.layers import MoE

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
    "W2": (lambda seed: new_model(WORKLOADS["W2"], "bank", seed), None, 20),
}


def measure_replicate(name, progress=lambda _: None):
    """Seconds of a plain run, of one that is compiled already, and of a copy.

    Args:
        name: A name in `SHAPES`.
        progress: Called with a text before each part.

    Returns:
        A dict of numbers.
    """
    build, load, epochs = SHAPES[name]
    data = load() if load else datasets.synthetic_moe(128, 20_000, 5_000, 5_000)
    found = {"plain": [], "again": [], "copy": []}
    settings = {"epochs": epochs, "shuffle": False, "verbose": 0}
    for turn in range(ROUNDS):
        progress(f"turn {turn + 1} of {ROUNDS}")
        began = time.perf_counter()
        keras.utils.set_random_seed(turn)
        model = build(turn)
        model.fit(Batches(data.train, BATCH_SIZE, turn), **settings)
        found["plain"].append(time.perf_counter() - began)
        began = time.perf_counter()
        model.fit(Batches(data.train, BATCH_SIZE, turn), **settings)
        found["again"].append(time.perf_counter() - began)
        began = time.perf_counter()
        replicate(
            build,
            data.train,
            seeds=range(COPIES),
            epochs=epochs,
            batch_size=BATCH_SIZE,
            verbose=0,
        )
        found["copy"].append((time.perf_counter() - began) / COPIES)
    result = {f"{key}_seconds": statistics.median(v) for key, v in found.items()}
    for key in ("plain", "again"):
        pairs = zip(found["copy"], found[key], strict=True)
        result[f"copy_of_{key}"] = statistics.median(a / b for a, b in pairs)
    return {**result, "copies": COPIES, "epochs": epochs}
