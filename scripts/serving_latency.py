"""Time inference: dense, condensed and one task, by each method to call a model.

    KERAS_BACKEND=tensorflow python scripts/serving_latency.py

writes docs/results/serving_*.json, from which `python docs/blocks.py` makes the table
of docs/serving.md. With --architectures it times the five methods of Table 3 of MMoE at
the sizes of the preset paper, in serving and in training, for the page of that table,
and writes docs/results/architectures_*.json. Run it on a machine without other work.
"""

import functools
import os
import pathlib
import sys
import tempfile
from typing import Any

from common.command_line import make_parser

ROOT = pathlib.Path(__file__).parents[1]
WORKLOAD = "W4-static"
BATCHES = (1, 32, 256, 4096)
ROUNDS = 50  # Turns of each form.
REPEATS = 8  # Of the architectures, to compare.
FORMS = {"nothing": None, "dense": "decided"}
FORMS |= {form: form for form in ("condensed", "one task")}


def main(arguments=None):
    """Measure on the backend in use, and write the results."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--architectures", action="store_true", help="time those of MMoE's Table 3")
    add("--out", default=str(ROOT / "docs/results"), help="folder to write into")
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from common.environment import environment, file_name
    from common.files import write_json
    from research.speed import WORKLOADS

    about = environment()
    about["command"] = " ".join(["python scripts/serving_latency.py", *given])
    if options.architectures:
        kind, found = "architectures", measure_architectures()
    else:
        workload = WORKLOADS[WORKLOAD]
        kind, found = "serving", measure(workload)
        about["workload"] = f"{WORKLOAD}: {workload.title}"
    path = pathlib.Path(options.out) / file_name(kind, about)
    write_json(path, {"about": about, "milliseconds": found})
    print(f"Written to {path}. Then run python docs/blocks.py.")


def measure(workload):
    """Milliseconds per batch: `{method: {form: {batch: median}}}`."""
    import keras

    x = keras.Input(workload.input_shape)
    # A model without arithmetic shows the overhead of a method.
    nothing = keras.Model(x, keras.layers.Identity()(x))
    models = {
        form: workload.model(name) if name else nothing for form, name in FORMS.items()
    }
    x = workload.data(-(-max(BATCHES) // workload.batch_size))[0]
    with tempfile.TemporaryDirectory() as folder:
        calls = {
            form: serving_methods(model, f"{folder}/{i}")
            for i, (form, model) in enumerate(models.items())
        }
        return {
            method: median_times({f: call[method] for f, call in calls.items()}, x)
            for method in calls["dense"]
        }


def median_times(calls, *arrays, batches=None):
    """The median milliseconds of calls on batches: `{name: {batch: median}}`."""
    from common.timing import medians_in_turns

    found = {name: {} for name in calls}
    for batch in batches or BATCHES:
        parts = [array[:batch] for array in arrays]
        own = [functools.partial(call, *parts) for call in calls.values()]
        for name, seconds in zip(found, medians_in_turns(own, ROUNDS), strict=True):
            found[name][batch] = 1e3 * seconds
    return found


def measure_architectures():
    """Milliseconds of a call: `{work: {architecture: {batch: a median each}}}`."""
    import numpy as np

    from research.papers.mmoe.table3 import ARCHITECTURES, BATCH, Table3

    experiment: Any = Table3.presets()["paper"]
    models = {name: experiment.model(name) for name in ARCHITECTURES}
    (shape,) = {model.input_shape[1:] for model in models.values()}
    generator = np.random.default_rng(0)
    x = generator.normal(size=(max(BATCHES), *shape)).astype("float32")
    y = generator.integers(2, size=(len(x), 2)).astype("float32")
    serving = {name: model.predict_on_batch for name, model in models.items()}
    training = {name: model.train_on_batch for name, model in models.items()}
    batches = {int(BATCH["training"])}
    several = {
        "serving": [median_times(serving, x) for _ in range(REPEATS)],
        "training": [
            median_times(training, x, y, batches=batches) for _ in range(REPEATS)
        ],
    }
    return {
        work: {
            name: {batch: [each[name][batch] for each in found] for batch in times}
            for name, times in found[0].items()
        }
        for work, found in several.items()
    }


def serving_methods(model, folder):
    """The methods to call a model on an array: functions that give NumPy arrays."""
    import keras

    backend = keras.backend.backend()

    def numpy(outputs):
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

    found = {"predict_on_batch": model.predict_on_batch, "direct call": None}
    if backend == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        def direct(x):
            with torch.inference_mode():
                return numpy(model(x))

        return {**found, "direct call": direct}
    found["direct call"] = lambda x: numpy(model(x))
    if backend == "jax":
        import jax  # pyright: ignore[reportMissingImports]

        # Copies: `predict_on_batch` donates the buffers of the variables.
        state = (
            [jax.numpy.copy(v.value) for v in model.trainable_variables],
            [jax.numpy.copy(v.value) for v in model.non_trainable_variables],
        )
        jitted = jax.jit(lambda *a: model.stateless_call(*a, training=False)[0])
        return {**found, "jax.jit": lambda x: numpy(jitted(*state, x))}
    import tensorflow as tf

    for name, jit in (("tf.function", False), ("tf.function with XLA", True)):
        graph = tf.function(model, jit_compile=jit)
        found[name] = lambda x, graph=graph: numpy(graph(tf.constant(x)))
    model.export(folder, verbose=False)
    loaded = tf.saved_model.load(folder)
    found["SavedModel"] = lambda x: numpy(loaded.serve(tf.constant(x)))
    return found


if __name__ == "__main__":
    sys.exit(main())
