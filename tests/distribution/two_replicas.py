"""Train the same models in one process and on two replicas, and print what differs.

A script, since TensorFlow's devices have to be divided before anything uses them.
"""

import contextlib
import functools
import json
import os
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from helpers import model_of, numbers

import dselectk_keras as dk
from dselectk_keras.distribution import sum_over_replicas
from dselectk_keras.ops import coefficient_of_variation

BATCH, STEPS, DIM = 8, 6, 3
TASKS = (
    dk.Task("amount", tower=(4,)),
    dk.Task("click", "binary"),
    dk.Task("like", "binary", weight=3.0),
    dk.Task("color", "multiclass", num_classes=3, metrics=("AUC",), loss="mse"),
)
X = numbers((BATCH * STEPS, DIM))
DRAWS = numbers((len(X), 4), seed=1)
Y = {
    "amount": DRAWS[:, 0],
    "click": (DRAWS[:, 1] > 0).astype("float32"),
    "like": (DRAWS[:, 2] > 0.5).astype("float32"),
    "color": np.eye(3, dtype="float32")[np.digitize(DRAWS[:, 3], [-0.5, 0.5])],
}
# Most of the first half of each batch, which is the first replica's.
GONE = (np.arange(len(X)) % BATCH < BATCH // 2) & (np.arange(len(X)) % 5 > 0)
# Some in both halves.
UNLABELED = np.arange(len(X)) % 6 == 1
MISSING = {name: labels.copy() for name, labels in Y.items()}
for name, labels in MISSING.items():
    labels[UNLABELED | GONE if name in {"amount", "like"} else UNLABELED] = np.nan
WEIGHTS = {name: np.abs(DRAWS[:, i]) for i, name in enumerate(Y)}
# The last batch has one example, so that one replica has none.
UNEVEN = BATCH * (STEPS - 1) + 1


def of_two_tasks(values):
    return {task.name: values[task.name] for task in TASKS[:2]}


class Interrupt(keras.callbacks.Callback):
    """Stops the program when the second epoch begins."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def tasks(tasks, gate, per_example=False, inputs=DIM, optimizer=(), **settings):
    parts = dk.DenseExperts(5 if per_example else 4, [4]), gate, per_example
    model = dk.build_multitask_model(inputs, tasks, "mmoe", *parts, **settings)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5, **dict(optimizer)))
    return model


def uncertain(gate, **settings):
    return tasks(TASKS, gate, task_weighting="uncertainty", **settings)


def averaged():
    optimizer = {"use_ema": True, "ema_momentum": 0.9}
    settings = {"inputs": dispatched(), "dispatch": True, "optimizer": optimizer}
    return tasks(TASKS[:2], dk.TopKGate(2), per_example=True, **settings)


def dispatched():
    """An encoder that dispatches to experts of a capacity with slots for all."""
    layer = dk.MoE(dk.DenseExperts(5, [4]), dk.TopKGate(2), True, dispatch=5.0)
    return model_of(layer, DIM)


def balanced():
    """Layers that add losses before and behind gates that sum over the replicas."""
    before, after = (keras.layers.Dense(n, activity_regularizer="l2") for n in (4, 2))
    gates = (dk.TopKGate(2, bias_rate=0.05, z_reg=0.1) for _ in range(2))
    moes = [dk.MoE(dk.DenseExperts(5, [4]), gate, per_example=True) for gate in gates]
    model = keras.Sequential([keras.Input((DIM,)), before, *moes, after])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def routed():
    inputs = keras.Input((DIM,))
    gates = [
        # A single expert: nothing depends on what is drawn.
        (1, dk.baselines.ReinforceGate(seed=0)),
        # Means over the examples.
        (3, dk.TopKGate(2, weights_regularizer=dk.EntropyRegularizer(1.0))),
        (3, dk.SoftmaxGate(z_reg=0.1)),
    ]
    x = [
        dk.MoE(dk.DenseExperts(n, [4]), gate, per_example=True)(inputs)
        for n, gate in gates
    ]
    penalty = keras.regularizers.L2(0.01)
    outputs = keras.layers.Dense(1, kernel_regularizer=penalty)(keras.layers.add(x))
    model = dk.baselines.RoutedModel(
        inputs, outputs, consistency=0.5, outputs_are="values"
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


# A model; its labels, sample weights and number of examples; callbacks.
CASES = {
    # Penalties of static weights.
    "labels, uncertainty": (
        functools.partial(
            uncertain,
            dk.DSelectKGate(2, entropy_reg=dk.Ramp(0.01, 0.1, end=9)),
            label_average="labels",
        ),
        (MISSING, WEIGHTS, UNEVEN),
        (),
    ),
    # Penalties of the weights of examples.
    "batch, uncertainty": (
        functools.partial(
            uncertain,
            dk.DSelectKGate(2, entropy_reg=0.01, unreachable=0.01),
            per_example=True,
        ),
        (MISSING, WEIGHTS, UNEVEN),
        (),
    ),
    "averaged, dispatched": (
        averaged,
        (*map(of_two_tasks, (MISSING, WEIGHTS)), UNEVEN),
        (),
    ),
    "routed": (routed, (DRAWS[:, :1], None, len(X)), ()),
    "balanced": (balanced, (DRAWS[:, :2], None, len(X)), ()),
    "callbacks": (
        lambda: tasks(2, dk.DSelectKGate(1)),
        (DRAWS[:, :2], None, len(X)),
        (
            functools.partial(dk.GateRecorder, every=2),
            # After one epoch of three.
            dk.DecideGates,
        ),
    ),
    "chosen": (
        lambda: tasks(2, dk.ChosenGate(1, num_gates=2)),
        (DRAWS[:, :2], None, len(X)),
        (dk.ChooseExperts,),
    ),
}


def train(scope, build, data, callbacks):
    """Results of a training for comparison, as nested lists by name.

    On two replicas, a training with callbacks is interrupted and resumed.
    """
    several = scope is not contextlib.nullcontext
    if not (several and callbacks):
        return fit(scope, build, data, [make() for make in callbacks])
    with tempfile.TemporaryDirectory() as folder:
        path, backup, logs = f"{folder}/gates.npz", f"{folder}/backup", {}
        note = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, found: logs.update({epoch: found})
        )
        for interrupt in ([Interrupt()], []):
            held = [make() for make in callbacks]
            for callback in held:
                if isinstance(callback, dk.GateRecorder):
                    callback.path = path
            held += [keras.callbacks.BackupAndRestore(backup), note, *interrupt]
            with contextlib.suppress(KeyboardInterrupt):
                found = fit(scope, build, data, held)
    return found | {name: [logs[e][name] for e in sorted(logs)] for name in logs[0]}


def fit(scope, build, data, callbacks):
    keras.utils.set_random_seed(0)
    with scope():
        model = build()
        # One process needs no graph: to trace it takes longer than to run these steps.
        model.run_eagerly = tf.distribute.get_strategy().num_replicas_in_sync == 1
    y, weights, samples = data
    x, y, weights = (
        keras.tree.map_structure(lambda v: None if v is None else v[:samples], values)
        for values in (X, y, weights)
    )
    epochs = 3 if callbacks else 2
    settings = {"sample_weight": weights, "shuffle": False, "verbose": 0}
    log = model.fit(x, y, BATCH, epochs, callbacks=callbacks, **settings)
    found = {"weights": model.get_weights(), **log.history}
    for callback in callbacks:
        if isinstance(callback, dk.GateRecorder):
            found["steps"] = callback.history.steps
            found["recorded"] = callback.history["mmoe"]["weights"]
    return found


def sums(strategy):
    """A variation of sums over the batch, and its gradient."""
    x = np.abs(numbers((6, 3)))

    def compute(rows):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            total = sum_over_replicas(tf.reduce_sum(rows, axis=0))
            value = coefficient_of_variation(total)
            share = value / tf.distribute.get_strategy().num_replicas_in_sync
        return value, tape.gradient(share, rows)

    given = parts(strategy, x)
    both = tf.function(lambda: strategy.run(compute, args=(given,)))()
    values, gradients = map(strategy.experimental_local_results, both)
    value, gradient = compute(tf.constant(x))
    found = [*values, np.concatenate(gradients)]
    return [*map(difference, found, [value, value, gradient])]


def parts(strategy, x):
    """Two rows of an array for one replica, and the others for the other one."""
    rows = tf.constant(x[:2]), tf.constant(x[2:])
    return strategy.experimental_distribute_values_from_function(
        lambda context: rows[context.replica_id_in_sync_group]
    )


def penalties(strategy):
    """Penalties that are not linear in the examples: per replica, and of its part."""
    x, found = numbers((6, DIM)), []
    for gate in (
        dk.SoftmaxGate(weights_regularizer=dk.ImportanceRegularizer(0.1)),
        dk.SoftmaxGate(weights_regularizer=dk.ImportanceRegularizer(0.1, squared=True)),
        dk.SwitchGate(weights_regularizer=dk.SwitchLoadRegularizer(0.1)),
        dk.SoftmaxGate(weights_regularizer=dk.SampleSimilarityRegularizer(0.3, 0.1)),
    ):
        with strategy.scope():
            layer = dk.MoE(dk.DenseExperts(3, [4]), gate, per_example=True)
            layer.build((None, DIM))

        def penalty(rows, layer=layer):
            layer(rows, training=True)
            return layer.losses[-1]  # Replicas share this list.

        given = parts(strategy, x)
        run = tf.function(lambda penalty=penalty, x=given: strategy.run(penalty, (x,)))
        together = [*strategy.experimental_local_results(run())]
        alone = [float(penalty(tf.constant(rows))) for rows in (x[:2], x[2:])]
        found.append(difference(together, alone))
    return found


def dropped(strategy):
    """The number of choices beyond a capacity: of two rows one, of four rows two."""
    with strategy.scope():
        layer = dk.MoE(dk.DenseExperts(2, [4]), dk.SwitchGate(), True, dispatch=1.0)
        layer.build((None, DIM))
    alike = parts(strategy, np.repeat(numbers((1, DIM)), 6, axis=0))
    tf.function(lambda: strategy.run(layer, (alike,)))()
    return difference(keras.ops.convert_to_numpy(layer.num_dropped.value), 1 + 2)


def strings(strategy):
    """Losses of a training on a table with strings and hashed ids."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": X[:, 0], "s": rng.choice(["x", "y", None], len(X))})
    frame["u"] = rng.integers(0, 9, len(X)).astype(str)
    labels, losses = np.stack([Y["click"], Y["like"]], axis=1), []
    for scope in (contextlib.nullcontext, strategy.scope):
        keras.utils.set_random_seed(0)
        with scope():
            encoder = dk.table_encoder(frame, hashed={"u": 5})
            tasks = [dk.Task(name, "binary") for name in ("click", "like")]
            model = dk.build_multitask_model(encoder, tasks)
            model.compile("sgd")
        log = model.fit(frame, labels, BATCH, epochs=2, verbose=0, shuffle=False)
        losses.append(log.history["task_loss"])
    return difference(*losses)


def difference(a, b):
    if isinstance(a, list):
        # Of NumPy, since Python's may overlook NaN.
        return np.max([*map(difference, a, b)]) if len(a) == len(b) else float("inf")
    return float(np.abs(np.subtract(a, b)).max())


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    half = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [half, half])
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    checks = sums, penalties, dropped, strings
    found = {each.__name__: each(strategy) for each in checks}
    for name, case in CASES.items():
        alone = train(contextlib.nullcontext, *case)
        two = train(strategy.scope, *case)
        found[name] = {key: difference(alone[key], two[key]) for key in alone}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
