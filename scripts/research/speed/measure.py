"""Times of the forms of a workload, taken in turns."""

import statistics
import time
from typing import Any

import keras
import numpy as np
from keras import ops

from common.environment import device
from research.speed.plain import PlainModel

# A turn of a form takes at least about this long, and has at most so many steps.
TURN_SECONDS, MOST_STEPS = 0.3, 256
# The side of the square matrices whose products tell how fast the machine can be, and
# their number: a GPU needs large ones, and several in a row, for which nobody waits.
FLOOR = {"CPU": (1024, 1), "GPU": (8192, 8)}


def check_forms(workload, tolerance=1e-4):
    """Refuse forms that do not compute the same; return their largest differences."""
    differences = workload.differences()
    wrong = {form: value for form, value in differences.items() if value > tolerance}
    if wrong:
        raise ValueError(
            f"All forms of a workload must predict the same, to {tolerance}. "
            f"Received differences: {wrong}."
        )
    return differences


def flops(workload, form):
    """Operations of a batch, an addition and a multiplication being two.

    Only products count. A training step has twice as many backward as forward, but for
    the first layer, whose inputs need no gradient.
    """
    first, *rest = (workload.batch_size * each for each in workload.products(form))
    return {
        "forward_flops": first + sum(rest),
        "training_flops": 2 * first + 3 * sum(rest),
    }


def measure(workload, makers, rounds=9, progress=lambda _: None):
    """Times of inference, of training and of the first steps, by form.

    Args:
        workload: A `Workload`.
        makers: A dict from forms to functions that return a model.
        rounds: How often each form has its turn.
        progress: Called with a text before each part.
    """
    models, results = {}, {}
    for form, make in makers.items():
        progress(f"first calls of {form}")
        x, y = workload.data()
        began = time.perf_counter()
        models[form] = model = make()
        model.predict_on_batch(x)
        model.fit(x, labels_of(model, y), batch_size=len(x), verbose=0)
        results[form] = {"first_seconds": time.perf_counter() - began}
        results[form] |= flops(workload, form)
    speeds = []
    for name, work in (("predict", _predict), ("call", _call), ("fit", _fit)):
        timed = [form for form in models if name in _measured(form)]
        turns = {form: _turn(work, workload, models[form]) for form in timed}
        times = {form: [] for form in timed}
        for turn in range(rounds):
            progress(f"{name}, turn {turn + 1} of {rounds}")
            for form in timed:
                steps, around = turns[form]
                seconds = work(workload, models[form], steps) - around
                times[form].append(max(seconds, 1e-9) / steps)
            speeds.append(matrix_speed())
        for form, taken in times.items():
            results[form][f"{name}_ms"] = 1e3 * statistics.median(taken)
            for other in {"list", "plain", "plain+metrics", "bank"} & {*times}:
                results[form][f"{name}_times_{other}"] = statistics.median(
                    a / b for a, b in zip(times[other], taken, strict=True)
                )
    speed = statistics.median(speeds)
    for result in results.values():
        for name, part in (("predict", "forward"), ("fit", "training")):
            if f"{name}_ms" in result:
                floor = 1e3 * result[f"{part}_flops"] / speed
                result[f"{name}_over_floor"] = result[f"{name}_ms"] / floor
    return {"forms": results, "matrix_gflops": speed / 1e9}


def _measured(form):
    """The measurements of a form."""
    if form == "plain+metrics":
        return ("fit",)  # The rest is that of "plain".
    # A direct call of a list with 128 gates takes seconds. XLA changes no direct call.
    uncalled = form in ("list", "XLA")
    return ("predict", "fit") if uncalled else ("predict", "call", "fit")


def _predict(workload, model, steps):
    x, _ = workload.data()
    began = time.perf_counter()
    for _ in range(steps):
        model.predict_on_batch(x)
    return time.perf_counter() - began


def _call(workload, model, steps):
    """Direct calls, without a program that Keras has compiled."""
    x = ops.convert_to_tensor(workload.data()[0])
    outputs: Any = None
    began = time.perf_counter()
    for _ in range(steps):
        outputs = model(x)
    _wait(keras.tree.flatten(outputs)[-1])
    return time.perf_counter() - began


def _fit(workload, model, steps):
    # The set-up of `fit`, before the first step, is not counted.
    x, y = workload.data(steps + 1)
    clock = _Clock()
    model.fit(
        *(x, labels_of(model, y)),
        batch_size=workload.batch_size,
        shuffle=False,
        verbose=0,
        callbacks=[clock],
    )
    return clock.seconds


def matrix_speed():
    """Operations a second in products of two large matrices."""
    size, count = FLOOR["CPU" if "CPU" in device() else "GPU"]
    a = ops.ones((size, size)) / size  # Products keep the values.
    _wait(ops.matmul(a, a))
    began, product = time.perf_counter(), a
    for _ in range(count):
        product = ops.matmul(product, a)
    _wait(product)
    return count * 2 * size**3 / (time.perf_counter() - began)


class _Clock(keras.callbacks.Callback):
    """Seconds from the begin of the second step to the end of the epoch."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self._began


def _turn(work, workload, model):
    """The number of steps of a turn, and its time beside them.

    The end of an epoch, where the metrics of all tasks are fetched, is not of a step.
    """
    work(workload, model, 1)
    one = min(work(workload, model, 1) for _ in range(3))
    more = min(work(workload, model, 9) for _ in range(2))
    step = max((more - one) / 8, 1e-6)
    steps = int(np.clip(np.ceil(TURN_SECONDS / step), 1, MOST_STEPS))
    return steps, max(0.0, one - step)


def labels_of(model, y):
    """Labels `(samples, tasks)` as a model takes them: by task name, or as they are."""
    if isinstance(model, PlainModel) or not isinstance(model.output, dict):
        return y
    names = list(model.output)
    return {name: y[:, int(name.split("_")[1])] for name in names}


def _wait(tensor):
    """Wait until a tensor is computed, on any device."""
    ops.convert_to_numpy(tensor[0, 0])
