"""Times of one epoch with labels by name and in one array."""

import statistics
import time
from typing import Any

import keras

ROWS, ROUNDS = 153_600, 15


def measure_labels(workload, rows=ROWS, rounds=ROUNDS, progress=lambda _: None):
    """Milliseconds per step of whole calls of `fit` and `evaluate`, by form of labels.

    `plain` has the layers of the package in a `keras.Model` with a loss and without
    metrics. Each call is one epoch, with all that it does before the first step. The
    forms take turns, after a call of each; a ratio is the median over the turns.
    """
    steps = max(1, rows // workload.batch_size)
    x, y = workload.data(steps)
    stacked = workload.model("stacked")
    plain = keras.Model(stacked.inputs, stacked.outputs)
    plain.compile(keras.optimizers.Adam(), "mse")
    by_name = {task.name: y[:, t].copy() for t, task in enumerate(stacked.tasks)}
    forms = {"plain": (plain, y), "array": (stacked, y), "by name": (stacked, by_name)}
    found: dict[str, Any] = {"rows": len(x), "epochs": 1, "steps": steps}
    for method in ("fit", "evaluate"):
        taken = {form: [] for form in forms}
        for turn in range(rounds + 1):
            progress(f"labels, {method}, turn {turn} of {rounds}")
            for form, (model, labels) in forms.items():
                began = time.perf_counter()
                getattr(model, method)(
                    x, labels, batch_size=workload.batch_size, verbose=0
                )
                taken[form].append(1e3 * (time.perf_counter() - began) / steps)
        times = {form: each[1:] for form, each in taken.items()}
        found[method] = {form: statistics.median(each) for form, each in times.items()}
        for form, other in (("by name", "array"), ("array", "plain")):
            ratios = [a / b for a, b in zip(times[form], times[other], strict=True)]
            found[method][f"{form} / {other}"] = statistics.median(ratios)
    return found
