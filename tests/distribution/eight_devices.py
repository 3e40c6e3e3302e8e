"""Train the same models on one device and on eight of JAX, and print what differs.

    python eight_devices.py                 all devices in this process
    python eight_devices.py ADDRESS NUMBER  one of two processes, four devices each

A script, since JAX's devices have to be divided before anything uses them.
"""

import collections
import contextlib
import json
import math
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

from common.command_line import COMPILE_FAST

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count={4 if sys.argv[1:] else 8} " + COMPILE_FAST
)

import jax
import keras
import numpy as np
from helpers import numbers
from keras import distribution
from plan import parse, plan

import dselectk_keras as dk

OTHERS = sys.argv[1:]
BATCH, DIM, EXPERTS = 16, 8, 8
X = numbers((2 * BATCH, DIM))
Y = np.where(numbers((2 * BATCH, 2), seed=1) > 1, np.nan, numbers((2 * BATCH, 2)))
# Names of cases, the widths of experts, the gate, and whether to dispatch.
CASES = {
    "narrow": (
        [6, 4],
        lambda: dk.DSelectKGate(2, weights_regularizer=dk.ImportanceRegularizer(0.1)),
        False,
    ),
    # Wide enough to be computed one by one on a single device.
    "wide": ([256], lambda: dk.TopKGate(2), False),
    "dispatched": ([256], lambda: dk.TopKGate(2), True),
}


def dispatching(units, gate, dispatch, momentum=0.5):
    """A compiled model of per-example gates."""
    bank, settings = dk.DenseExperts(EXPERTS, units), {"per_example": True}
    settings["dispatch"] = dispatch
    model = dk.build_multitask_model(DIM, 2, experts=bank, gate=gate, **settings)
    model.compile(keras.optimizers.SGD(0.1, momentum=momentum))
    return model


def split_experts(shape):
    """Parts of the batch times parts of the experts; processes have own batches."""
    layouts = dk.experts.expert_layout_map(
        distribution.DeviceMesh(shape, ["batch", "experts"])
    )
    settings = {"batch_dim_name": "batch", "auto_shard_dataset": False}
    return distribution.ModelParallel(layout_map=layouts, **settings)


def train(case):
    """A trained model, and its losses."""
    units, gate, dispatch = CASES[case]
    keras.utils.set_random_seed(0)
    model = dispatching(units, gate(), dispatch)
    share, size = slice(None), BATCH
    if OTHERS:  # Each process has its half of each batch.
        share = np.arange(len(X)).reshape(2, 2, -1)[:, int(OTHERS[1])].reshape(-1)
        size = BATCH // 2
    log = model.fit(X[share], Y[share], size, epochs=2, shuffle=False, verbose=0)
    return model, log.history["loss"]


def watched(interrupted=None):
    """Results of a training with callbacks, for comparison.

    With a distribution, the training is interrupted on it, and resumed on the current.
    """
    logs = collections.defaultdict(dict)
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, values: logs[epoch].update(values)
    )
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        if interrupted is not None:
            resumed = distribution.distribution()
            distribution.set_distribution(interrupted)
            with contextlib.suppress(KeyboardInterrupt):
                fit_with_callbacks(folder, [note, Interrupt()])
            distribution.set_distribution(resumed)
        found = fit_with_callbacks(folder, [note])
    return found | {name: [logs[e][name] for e in sorted(logs)] for name in logs[0]}


class Interrupt(keras.callbacks.Callback):
    """Stops the program in the third epoch, when the gates have decided."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def fit_with_callbacks(folder, others=()):
    keras.utils.set_random_seed(0)
    parts = dk.DenseExperts(EXPERTS, [4]), dk.DSelectKGate(1)
    model = dk.build_multitask_model(DIM, 2, "mmoe", *parts)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5))
    recorder = dk.GateRecorder(every=1, path=folder / "gates.npz")
    settings = {"restore_best_weights": True, "start_from_epoch": 2, "mode": "min"}
    stopping = keras.callbacks.EarlyStopping("val_task_loss", patience=1, **settings)
    backup = keras.callbacks.BackupAndRestore(folder / "backup")
    # Early stopping begins anew, and sees no epoch before the interruption.
    callbacks = [recorder, dk.DecideGates(0.4), stopping, backup, *others]
    settings = {"validation_data": (X, Y), "shuffle": False, "verbose": 0}
    model.fit(X, Y, BATCH, 5, callbacks=callbacks, **settings)
    return {
        "best": stopping.best,
        "recorded": recorder.history["mmoe"]["weights"].tolist(),
        "predicted": np.stack([*model.predict(X, verbose=0).values()]).tolist(),
    }


def program(model, rows=BATCH):
    """The compiled training step of one device."""
    groups = model.trainable_variables, model.non_trainable_variables
    groups += model.optimizer.variables, model.metrics_variables
    state = tuple([variable.value for variable in group] for group in groups)
    batch = np.zeros((rows, DIM), "float32"), np.zeros((rows, 2), "float32")
    several = distribution.distribution()
    if several is not None:
        layouts = (several.get_data_layout(part.shape) for part in batch)
        batch = jax.device_put(batch, tuple(each.backend_layout for each in layouts))
    return jax.jit(model.train_step).lower(state, batch).compile()


def experts_moved(model):
    """Count how often a training step sends kernels from device to device."""
    moved = ("all-gather(", "collective-permute(", "all-to-all(")
    units = model.get_layer("mmoe").experts.units[0]
    return sum(
        f",{DIM},{units}]" in line.partition("=")[2].partition("{")[0]
        for line in program(model).as_text().splitlines()
        if any(each in line for each in moved)
    )


def model_with_capacity(gate):
    keras.utils.set_random_seed(0)
    model = dispatching([256], gate, 1.5, momentum=0.0)
    model.optimizer.build(model.trainable_variables)
    return model


def operations(rows=512):
    """Those of a training step, as JAX counts them for a device."""
    model = model_with_capacity(dk.TopKGate(1))
    model.evaluate(X, Y, verbose=0)
    return program(model, rows).cost_analysis()["flops"]


def capacities(parts):
    """Predictions for parts of a batch, and the choices that they drop."""
    model = model_with_capacity(dk.TopKGate(2))
    outputs = [model.predict(X[part], len(part), verbose=0) for part in parts]
    predicted = [np.stack([*each.values()], axis=1) for each in outputs]
    dropped = int(model.get_layer("mmoe").num_dropped.value)
    return {"predicted": np.concatenate(predicted), "dropped": dropped}


def all_needed(distributions):
    """Compute `needed` on both meshes, with all experts evaluated and dispatched."""
    sizes = f"--features {DIM} --experts {EXPERTS} --units 256 --tasks 2 --tower"
    sizes += " --batch 512 --slots 1 --devices "
    found = {}
    for name, devices in (("data", "8 1"), ("experts", "2 4")):
        distribution.set_distribution(distributions[name])
        for dispatch in (False, True):
            given = sizes + devices + " --dispatch" * dispatch
            found[f"needed, {name}, {dispatch}"] = needed(parse(given.split()))
    return found


def needed(options):
    """Bytes per device and step, by name: those that JAX counts, and the plan's."""
    planned = plan(options)
    dispatch = 1.5 if options.dispatch else False
    model = dispatching(tuple(options.units), dk.TopKGate(options.nonzeros), dispatch)
    model.evaluate(X, Y, verbose=0)
    model.optimizer.build(model.trainable_variables)
    step = program(model, options.batch)
    memory = step.memory_analysis()
    batch = 4 * options.batch // options.devices[0] * (DIM + 2)
    # The plan counts gradients too, which are no arguments of the step.
    arguments = (1 + options.slots) / (2 + options.slots)
    state = memory.argument_size_in_bytes - batch
    return {
        "state": [state, planned["state, B"] * arguments],
        "activations": [memory.temp_size_in_bytes, planned["activations, B"]],
        "sent": [sum(map(sent, step.as_text().splitlines())), planned["sent, B"]],
    }


def sent(line):
    """Bytes that a device sends for a line of a program, around a ring of devices."""
    found = re.search(r"= (.*?) (all-reduce|all-gather|all-to-all)\(", line)
    if not found:
        return 0
    sizes = [
        math.prod(int(size) for size in shape.split(",") if size)
        for shape in re.findall(r"32\[([\d,]*)\]", found[1])
    ]
    # A number of them, a list, or names of axes of a mesh.
    forms = r"\[\d+,(\d+)\]|\{\{([\d,]+)\}|mesh\[(.*?)\].*?\{(.*?)\}"
    groups: Any = re.search(rf"replica_groups=(?:{forms})", line)
    size, members, sizes_of_axes, names = groups.groups(default="")
    axes = dict(re.findall(r"'(\w+)'=(\d+)", sizes_of_axes))
    if members:
        size = members.count(",") + 1
    elif names:
        size = math.prod(int(axes[name]) for name in re.findall(r"'(\w+)'", names))
    devices = int(size)
    rounds = (2 if found[2] == "all-reduce" else 1) * (devices - 1) / devices
    return 4 * sum(sizes) * rounds


def main():
    if OTHERS:
        distribution.initialize(OTHERS[0], 2, int(OTHERS[1]))
        distribution.set_distribution(split_experts((2, 4)))
        model, losses = train("narrow")
        weights = [each.tolist() for each in model.get_weights()]
        found = {"weights": weights, "loss": losses}
        # Each process has a part of the experts only.
        distribution.set_distribution(split_experts((1, 8)))
        try:
            dk.build_multitask_model(DIM, 2, experts=EXPERTS).get_weights()
        except RuntimeError as error:
            found["refused"] = str(error)
        sys.stdout.write(json.dumps(found))
        return
    distributions = {
        "data": distribution.DataParallel(),
        "experts": split_experts((2, 4)),
        "other experts": split_experts((1, 8)),
    }
    found = {"alone": {}}
    for case in CASES:
        distribution.set_distribution(None)
        alone, losses = train(case)
        if case == "narrow":
            weights = [each.tolist() for each in alone.get_weights()]
            found["alone"] = {"weights": weights, "loss": losses}
        for name in ("data", "experts"):
            if (case, name) == ("wide", "data"):
                continue  # As one device.
            distribution.set_distribution(distributions[name])
            model, own = train(case)
            pairs = zip(model.get_weights(), alone.get_weights(), strict=True)
            difference = max(np.abs(a - b).max() for a, b in pairs)
            loss = np.abs(np.subtract(own, losses)).max()
            result: dict = {"weights": float(difference), "loss": float(loss)}
            if name == "experts":
                result["held"] = [
                    shard.data.shape[0]
                    for variable in [*model.variables, *model.optimizer.variables]
                    if "dense_experts" in variable.path
                    for shard in variable.value.addressable_shards
                ]
                result["moved"] = experts_moved(model)
            found[f"{case}, {name}"] = result
    found.update(all_needed(distributions))
    rows = np.arange(len(X))
    distribution.set_distribution(None)
    one, by_part = operations(), capacities(np.split(rows, 8))
    distribution.set_distribution(distributions["data"])
    together = capacities([rows])
    found["capacity"] = {
        "operations": operations() / one,
        "dropped": [by_part["dropped"], together["dropped"]],
        "predicted": float(np.abs(by_part["predicted"] - together["predicted"]).max()),
    }
    distribution.set_distribution(None)
    alone = watched()
    for first, name in (("data", "data"), ("experts", "other experts")):
        distribution.set_distribution(distributions[name])
        several = watched(interrupted=distributions[first])
        found[f"watched, {name}"] = {
            key: float(np.abs(np.subtract(alone[key], several[key])).max())
            for key in alone
        }
    try:
        dk.condense(dk.build_multitask_model(DIM, 2, gate=dk.DSelectKGate(1)))
    except ValueError as error:
        found["refused"] = str(error)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
