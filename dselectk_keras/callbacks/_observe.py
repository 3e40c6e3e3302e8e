"""Weights, loads and penalties of the gates of a model, as arrays."""

import warnings
import weakref
from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras._keras import all_layers, calls_by_layer
from dselectk_keras.gates import Gate
from dselectk_keras.gates.record import recording
from dselectk_keras.layers.gated_experts import GatedExperts
from dselectk_keras.models.columns import as_inputs

# Pairs of a step and what callbacks have done to a gate then, in this process.
_events = weakref.WeakKeyDictionary()


class ModelGate(NamedTuple):
    """A gate of a model, its name, those of its tasks, and its calls per step."""

    name: str
    gate: Any
    tasks: list
    calls: int

    def training_step(self, step):
        """The step of a training at a step of the gate, which counts its calls."""
        return int(keras.ops.convert_to_numpy(step)) // self.calls


def find_gates(model):
    """List the gates of a model."""
    owners = {}
    for layer in all_layers(model, GatedExperts):
        owners[id(layer.gate)] = layer.name, getattr(layer, "task_names", None)
        shared_gate = getattr(layer, "shared_gate", None)
        owners[id(shared_gate)] = f"{layer.name}_shared", ["shared"]
    calls = calls_by_layer(model)
    gates, names = [], []
    for gate in all_layers(model, Gate):
        name, tasks = owners.get(id(gate), (gate.name, None))
        if tasks is None:
            tasks = [f"gate_{i}" for i in range(gate.num_gates or 1)]
        elif gate.num_gates == 1:
            tasks = ["all tasks"]
        names.append(name)
        # Nested models may have layers of the same name.
        number = names.count(name) - 1
        name = f"{name}#{number}" if number else name
        # A number of calls that is not known counts as one.
        gates.append(ModelGate(name, gate, tasks, max(1, calls[id(gate)])))
    return gates


def note_event(gate, text):
    """Note what has happened to a gate at its present step."""
    step = int(keras.ops.convert_to_numpy(gate.step))
    _events.setdefault(gate, []).append((step, text))


def events_of(gate):
    """List what has happened to a gate, with the steps."""
    return [*_events.get(gate, ())]


def warn_if_idle(gates):
    """Warn of gates that counted no training step; return whether there are any."""
    idle = [
        gate.name
        for gate in gates
        if not (gate.built and int(keras.ops.convert_to_numpy(gate.step)))
    ]
    if idle:
        warnings.warn(
            f"Gates counted no training step: {', '.join(idle)}. They decide and add "
            "penalties only when they are called with training=True. Give `call` of "
            "your models and layers an argument `training`.",
            stacklevel=3,
        )
    return bool(idle)


def describe_collapse(steps, weights):
    """Say how gates collapsed, if they stayed so in the last half of the training.

    An expert is dead if no task gives it a tenth of an even share. The weights are
    `(records, tasks, n)`, of gates that are meant to use all experts.
    """
    late = weights[2 * steps > steps[-1]]
    *_, num_tasks, n = weights.shape
    if len(late) < 2:
        return ""
    num_dead = int((late.max(axis=(0, 1)) < 0.1 / n).sum())
    if num_dead and num_tasks > 1 and np.ptp(late, axis=1).max() < 0.05:
        return f"all tasks have the same weights, and use {n - num_dead} of {n} experts"
    return f"{num_dead} of {n} experts are dead" if num_dead else ""


def observe(model, gates, probe):
    """Get the arrays of each gate of a model, by quantity, by name."""
    reports = {name: [] for name, *_ in gates}
    found = {id(gate): reports[name] for name, gate, *_ in gates}

    def note(call):
        # At once, since the outputs of the experts need much memory.
        found[id(call.gate)].append(call.gate.report(call.routing))

    # In a stateless scope, observing changes no variable.
    with keras.StatelessScope():
        if probe is not None:
            inputs = as_inputs(model, probe)
            inputs = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
            with recording(note):
                model(inputs, training=False)
        for name, gate, _, calls in gates:
            if not reports[name] and gate.per_example:
                received = "probe=None" if probe is None else "a probe without them"
                raise ValueError(
                    f"The gates of {name!r} are per-example. Received: {received}. "
                    "Set `probe` to a batch of inputs with which the model calls every "
                    "gate, and if a layer of your own does, let it `record_call`."
                )
            reports[name] = reports[name] or [gate.report()] * calls
    reports = _as_numpy(reports)
    return {name: _summarize(reports[name], gate) for name, gate, *_ in gates}


def _as_numpy(reports):
    """Copy the tensors of all gates to the host; on JAX, all at once."""
    if keras.backend.backend() == "jax":
        import jax  # pyright: ignore[reportMissingImports]

        return jax.device_get(reports)
    return keras.tree.map_structure(keras.ops.convert_to_numpy, reports)


def _summarize(reports, gate):
    """Average a gate's calls; penalties add up."""
    calls = [_arrays(report, gate) for report in reports]
    return {
        name: (np.sum if name.startswith("penalty_") else np.mean)(
            [call[name] for call in calls], axis=0
        )
        for name in calls[0]
    }


def _arrays(report, gate):
    """The arrays of a call, with a task axis and no batch axis."""
    valid = report.get("valid", slice(None))

    def tidy(value):
        if gate.num_gates is None:
            value = np.expand_dims(value, int(gate.per_example))
        return value[valid].mean(axis=0) if gate.per_example else value

    weights = report["weights"]
    if getattr(gate, "num_before", None) is not None:
        # The experts of a condensed gate keep their original indices.
        places = np.zeros((*weights.shape[:-1], gate.num_before), weights.dtype)
        places[..., gate.kept] = weights
        weights = places
    return {
        "weights": tidy(weights),
        "load": tidy((weights > 0).astype("float32")),
        "active": tidy((weights > 0).sum(axis=-1).astype("float32")),
        **{name: tidy(value) for name, value in report["selectors"].items()},
        **{f"penalty_{name}": value for name, value in report["penalties"].items()},
    }
