"""What the gates of a model do, as arrays."""

import warnings

import keras
import numpy as np

from dselectk_keras._keras import all_layers, calls_by_layer
from dselectk_keras.gates import Gate
from dselectk_keras.layers.gated_experts import GatedExperts


def gates_of(model):
    """List the gates of a model: name, gate, and the names of its tasks."""
    layers = all_layers(model)
    owners = {}
    for layer in layers:
        if isinstance(layer, GatedExperts):
            owners[id(layer.gate)] = layer.name, getattr(layer, "task_names", None)
            shared_gate = getattr(layer, "shared_gate", None)
            owners[id(shared_gate)] = f"{layer.name}_shared", ["shared"]
    gates, names = [], []
    for gate in dict.fromkeys(layer for layer in layers if isinstance(layer, Gate)):
        name, tasks = owners.get(id(gate), (gate.name, None))
        if tasks is None:
            tasks = [f"gate_{i}" for i in range(gate.num_gates or 1)]
        elif gate.num_gates == 1:
            tasks = ["all tasks"]
        names.append(name)
        # Nested models may have layers of the same name.
        number = names.count(name) - 1
        gates.append((f"{name}#{number}" if number else name, gate, tasks))
    return gates


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


def make_observer(model, gates, probe):
    """Make a function that returns the arrays of each gate, by quantity, by name.

    Args:
        model: A built model.
        gates: Its gates, as `gates_of` lists them.
        probe: Inputs of the model for per-example gates, or `None`.
    """
    for name, gate, _ in gates:
        if gate.per_example and probe is None:
            raise ValueError(
                f"The gates of {name!r} are per-example. Received: probe=None. "
                "Set `probe` to a batch of inputs, on which they are recorded."
            )
    reports = _compiled(model, gates, probe)

    def observe():
        arrays = keras.tree.map_structure(keras.ops.convert_to_numpy, reports())
        return {name: _summarize(arrays[name], gate) for name, gate, _ in gates}

    return observe


def _reports(model, gates, probe):
    """Get the reports of each gate, one for each call in an evaluation of the model."""
    # A number of calls that is not known counts as one.
    calls = {key: max(1, number) for key, number in calls_by_layer(model).items()}
    reports = {name: [] for name, _, _ in gates}
    if probe is not None:
        for name, gate, _ in gates:
            gate.observer = reports[name].append
        try:
            model(probe, training=False)
        finally:
            for _, gate, _ in gates:
                gate.observer = None
    for name, gate, _ in gates:
        if not reports[name] and gate.per_example:
            raise ValueError(
                f"The gates of {name!r} are per-example, and the model does not call "
                "them on the `probe`. The probe must reach every gate."
            )
        reports[name] = reports[name] or [gate.report()] * calls[id(gate)]
    return reports


def _compiled(model, gates, probe):
    """Make a function that gets the reports; it is compiled, except on torch."""
    if probe is not None:
        probe = keras.tree.map_structure(keras.ops.convert_to_tensor, probe)

    def observe():
        # In a stateless scope, observing changes no variable.
        with keras.StatelessScope():
            return _reports(model, gates, probe)

    if keras.backend.backend() == "torch":
        return observe
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # A concrete function, because TensorFlow warns about functions created often.
        # As in Keras' own steps, there is no code for AutoGraph to convert.
        return tf.function(observe, autograph=False).get_concrete_function()
    import jax  # pyright: ignore[reportMissingImports]

    @jax.jit
    def compiled(values, probe):
        state = zip(model.variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(state)):
            return _reports(model, gates, probe)

    return lambda: compiled([v.value for v in model.variables], probe)


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
        "active": tidy((weights > 0).sum(axis=-1).astype("float32")),
        **{name: tidy(value) for name, value in report["selectors"].items()},
        **{f"penalty_{name}": value for name, value in report["penalties"].items()},
    }
