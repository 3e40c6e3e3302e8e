"""The memory that a step takes."""

import pathlib

import keras
import numpy as np

from benchmarks.forms import new_model
from benchmarks.measure import labels_of
from dselectk_keras.datasets.recommender_sim import Recommender
from dselectk_keras.gates import DSelectKGate
from dselectk_keras.models import build_multitask_model

CLEAR, STATUS = pathlib.Path("/proc/self/clear_refs"), pathlib.Path("/proc/self/status")


def peak_memory(workload, form):
    """By how much a training step lets a fresh process grow at its highest.

    Only the first call in a process tells: memory that was had before is used again.

    Args:
        workload: A `Workload`.
        form: A name in `FORMS`.

    Returns:
        A number of bytes, or `None` where the system does not tell.
    """
    model = new_model(workload, form)
    x, y = workload.data()
    labels = labels_of(model, y)
    try:
        CLEAR.write_text("5", encoding="ascii")  # The peak is the present from here on.
        before = _status("VmRSS")
        model.fit(x, labels, batch_size=len(x), epochs=2, verbose=0)
        return _status("VmHWM") - before
    except OSError:
        return None


def memory_growth(epochs=6, steps=1000):
    """By how much a process grows while it trains on a stream without an end.

    Args:
        epochs: How often to look.
        steps: Training steps in between.

    Returns:
        A list of numbers of bytes, one for each epoch after the first.
    """
    model = build_multitask_model(20, 8, gate=DSelectKGate(2))
    model.compile(keras.optimizers.Adam())
    batches = (tuple(batch) for batch in Recommender(seed=0).batches(256, 3, 0))
    sizes = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: sizes.append(_status("VmRSS"))
    )
    model.fit(
        batches, steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=[look]
    )
    return np.diff(sizes).tolist()


def program_memory(workload, form):
    """The temporary memory of a training step, as XLA plans it; on JAX only.

    Args:
        workload: A `Workload`.
        form: A name in `FORMS`.

    Returns:
        Numbers of bytes and of operations.
    """
    import jax  # pyright: ignore[reportMissingImports]

    model = new_model(workload, form)
    x, y = workload.data()
    model.fit(x, labels_of(model, y), batch_size=len(x), verbose=0)
    state = [
        [np.array(variable.value) for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    ]
    batch = (np.asarray(x), labels_of(model, y))
    program = jax.jit(model.train_step).lower(state, batch).compile()
    forward = jax.jit(
        lambda trainable, other, x: model.stateless_call(trainable, other, x)[0]
    )
    forward = forward.lower(state[0], state[1], x).compile()
    return {
        "temporary_bytes": program.memory_analysis().temp_size_in_bytes,
        "forward_flops": forward.cost_analysis()["flops"],
        "training_flops": program.cost_analysis()["flops"],
    }


def _status(name):
    lines = STATUS.read_text(encoding="ascii").splitlines()
    found = next(line for line in lines if line.startswith(name))
    return 1024 * int(found.split()[1])
