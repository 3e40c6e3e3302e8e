"""Extract the sub-model of one task."""

import itertools
from typing import Any

import keras
import numpy as np

from dselectk_keras._keras import (
    call_again,
    calls_for,
    calls_in,
    has_graph,
    names_of_outputs,
    recomputed,
)
from dselectk_keras.gates import Gate
from dselectk_keras.gates.chosen import warn_if_random
from dselectk_keras.layers import MMoE, MoE
from dselectk_keras.layers.gated_experts import BY_GATE, GatedExperts
from dselectk_keras.models.condense import condensed
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.rebuild import mixtures_and_gates, narrowed_gate, rebuild
from dselectk_keras.models.task import group_tasks
from dselectk_keras.models.towers import Predict, Take, flatten
from dselectk_keras.utils import argument_names


def per_task(model: Any, name: str, tolerance: float = 0.0) -> Any:
    """Extract the sub-model of one task: its gate, its tower and the experts it uses.

    For example, if 128 tasks share 32 experts and each task uses four of them, the
    sub-model has four experts. All experts stay if the gate is per-example, or a
    softmax, since it may use each of them; the gates of the other tasks do not.

    Args:
        model: A model of `build_multitask_model`, a `MultitaskModel` of layers of your
            own, or a functional model whose outputs are a dict by task name. Static
            gates that choose experts must be binary for this task (see `condense`).
            Layers behind the towers are kept. They must read this task alone. Of a
            gate that is called on experts, the rows are left out that other tasks read
            as `mixtures[:, row]`. A `CGC` or `SmearExperts` stays whole.
        name: The name of the task.
        tolerance: See `condense`.

    Returns:
        A `MultitaskModel` with only this task, without `task_weighting`, or a
        `keras.Model` if the model has no tasks. It is not compiled.

    Example:
        >>> model = build_multitask_model(5, ["a", "b"], gate=TopKGate(2))
        >>> small = per_task(model, "b")
        >>> small.get_layer("mmoe").experts.num_experts
        2

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 2.
    """
    tasks = {task.name: task for task in getattr(model, "tasks", ())}
    outputs = model.output if has_graph(model) else None
    if not tasks and not isinstance(outputs, dict):
        raise ValueError(
            "A built functional model is needed that has tasks, or a dict of outputs "
            "by task name, as in keras.Model(inputs, {'click': click}). Received: "
            f"{model!r} of the type {type(model).__name__}. A model of your own class "
            "is one if you call its layers on `keras.Input`."
        )
    names = [*tasks] or [*outputs]
    if name not in names:
        raise ValueError(
            f"The model has no task of the name {name!r}. "
            f"Its tasks: {', '.join(map(str, names))}."
        )
    warn_if_random(model)
    mixtures_and_gates(model, GatedExperts, needed=False)  # They share no part.
    copy = rebuild(model)
    (label,) = group_tasks([tasks[name]]) if tasks else [name]
    label = f"{model.name}_{label}"
    if not tasks:
        small = keras.Model(copy.input, {name: _output(copy, name)}, name=label)
    else:
        small = MultitaskModel(
            copy.input,
            {name: _output(copy, name)},
            tasks=[tasks[name]],
            label_average=model.task_losses.label_average,
            name=label,
        )
    return condensed(small, tolerance, partly=True)


def _output(model, name):
    """Compute the output of a task from its own gates and tower, and what follows."""
    if not isinstance(model.output, dict):
        _check_stacked(model)
        return _prediction(model, name)
    output, parts = model.output[name], _parts(model)
    # Towers of no output, as those of the members of a `TableModel`, stay as they are.
    parts = {
        key: (layer, task)
        for key, (layer, task) in parts.items()
        if not isinstance(layer, Predict) or task in model.output
    }
    calls = calls_for(model, output, parts)
    read = [id(each) for call in calls for each in call.input_tensors]
    own = {key: parts[key] for key in (*read, id(output)) if key in parts}
    if len({task for _, task in own.values()}) > 1:
        readers = dict.fromkeys(
            call.operation.name
            for call in calls
            for each in call.input_tensors
            if parts.get(id(each), (None, name))[1] != name
        )
        raise ValueError(
            f"The output of the task {name!r} must read no other task. Received: "
            f"a model in which the layers {', '.join(readers)} do. Leave them out of "
            "the model that you pass, and call them on its predictions."
        )
    replaced = {}
    for key, (layer, task) in own.items():
        if isinstance(layer, Predict):
            replaced[key] = _prediction(model, name)
        elif task is not None:
            replaced[key] = _mixture(model, layer, task)[task]
    return recomputed(model, output, _rows_that_are_read(model, output, replaced))


def _rows_that_are_read(model, output, replaced):
    """Add rows of gates or `MoE` to those `replaced`; others are not computed."""
    calls = calls_for(model, output, replaced)
    for call in calls:
        layer, (mixtures, *others) = call.operation, call.outputs
        axis = getattr(layer, "num_routed_axes", 1)
        if not isinstance(layer, (Gate, MoE)):
            continue
        gate = getattr(layer, "gate", layer)
        again = sum(each.operation is layer for each in calls_in(model)) > 1
        if others or again or (gate.num_gates or 1) == 1:
            continue
        readers = [x for x in calls if any(t is mixtures for t in x.input_tensors)]
        keys = [_key(reader, axis) for reader in readers]
        if None in keys or mixtures is output:
            continue
        rows = sorted({key[axis] % gate.num_gates for key in keys})
        new = _with_rows(gate, rows)
        if layer is not gate:
            names = getattr(layer, "task_names", None)
            new = _with_gate(layer, new, names and [names[row] for row in rows])
        mixed = _call_rows(model, call, new, rows, replaced)
        for reader, key in zip(readers, keys, strict=True):
            row = rows.index(key[axis] % gate.num_gates)
            replaced[id(reader.outputs[0])] = mixed[
                (*key[:axis], row, *key[axis + 1 :])
            ]
    return replaced


def _key(call, axis):
    """The key of `tensor[:, row]`, if that is what a call does, or `None`."""
    if type(call.operation).__name__ != "GetItem":
        return None
    _, key = call.arguments.args
    key = tuple(key) if isinstance(key, (tuple, list)) else ()
    is_row = len(key) > axis and type(key[axis]) is int
    return key if is_row and all(x == slice(None) for x in key[:axis]) else None


def _call_rows(model, call, layer, rows, known=None):
    """Call a layer as before, but on the routing inputs of some of its gates."""
    known = dict(known or {})
    args, kwargs = call.arguments.args, call.arguments.kwargs
    routing = args[1] if len(args) > 1 else kwargs.get("routing_inputs")
    old = call.operation
    if old.per_example == BY_GATE or (
        isinstance(old, Gate) and routing is not None and len(routing.shape) == 3
    ):
        new = recomputed(model, routing, known)
        known[id(routing)] = Take(rows, axis=getattr(old, "num_routed_axes", 1))(new)
    for tensor in call.input_tensors:
        if id(tensor) not in known:
            known[id(tensor)] = recomputed(model, tensor, known)
    return call_again(call, layer, known)


def _parts(model):
    """List tensors of one task each, by their `id`, with their layer and the task.

    They are the outputs of the towers, or of layers that give each task its mixture.
    In a model with towers, mixtures of all tasks have no task.
    """
    has_towers = any(isinstance(layer, Predict) for layer in model.layers)
    parts, calls = {}, calls_in(model)
    for call in calls:
        layer, names = call.operation, None
        if sum(other.operation is layer for other in calls) > 1:
            continue  # Its calls share the experts.
        if isinstance(layer, Predict) and layer.names is not None:
            names = names_of_outputs(layer.names)
            if not {*names} <= {*model.output}:
                continue  # Those of the members of a `TableModel`, which all stay.
        elif isinstance(layer, MMoE) and has_towers:
            names = [None]
        elif isinstance(layer, MMoE) and not layer.stacked:
            names = layer.task_names
            if layer.tasks != len(names):
                names = names_of_outputs(names)
        for tensor, name in zip(call.outputs, names or (), strict=False):
            parts[id(tensor)] = layer, name
    return parts


def _check_stacked(model):
    """Check that no layer of a user follows the towers to the one output."""
    calls = calls_in(model)
    towers = [call.outputs for call in calls if isinstance(call.operation, Predict)]
    groups = group_tasks(model.tasks).values()
    unsorted = (np.diff(np.concatenate([*groups])) < 0).any()
    one_each = model.tasks[0].num_outputs == 1
    # What `build_multitask_model` adds.
    expected = {"Concatenate": len(groups) > 1, "Take": unsorted, "Squeeze": one_each}
    known = map(id, itertools.chain(*towers))
    behind = [call.operation for call in calls_for(model, model.output, known)]
    if [type(each).__name__ for each in behind] != [n for n in expected if expected[n]]:
        raise ValueError(
            "One output for all tasks must be that of `build_multitask_model`, since "
            "layers behind it read all tasks. Received: an output of the layer "
            f"{behind[-1].name!r}. Build a model with outputs by task name."
        )


def _prediction(model, name):
    """Compute the predictions of a task with layers for this task alone."""
    index = [task.name for task in model.tasks].index(name)
    task = model.tasks[index]
    (label,) = group_tasks([task])
    group, indices = next(
        item for item in group_tasks(model.tasks).items() if index in item[1]
    )
    place = indices.index(index)
    names = [f"predict_{group}", *[f"towers_{group}"] * (task.tower != "sum")]
    if any(layer.name == "mmoe" for layer in model.layers):
        mixtures = flatten(_mixture(model, model.get_layer("mmoe"), name, stacked=True))
    else:
        first = next(x for x in calls_in(model) if x.operation.name == names[-1])
        mixtures = Take([place])(first.input_tensors[0])
    if task.tower != "sum":
        towers = model.get_layer(f"towers_{group}").sliced([place])
        towers.name = f"towers_{label}"
        mixtures = towers(mixtures)
    config = model.get_layer(f"predict_{group}").get_config()
    config |= {"names": [name], "name": f"predict_{label}"}
    return Predict.from_config(config)(mixtures)[name]


def _mixture(model, layer, name, stacked=False):
    """Compute the mixture of one task with a layer for this task alone."""
    row = layer.task_names.index(name)
    gate = _with_rows(layer.gate, [row if layer.gate.num_gates > 1 else 0])
    new = _with_gate(layer, gate, [name], stacked=stacked)
    call = next(each for each in calls_in(model) if each.operation is layer)
    return _call_rows(model, call, new, [row])


def _with_gate(layer, gate, tasks, **changes):
    """Build a layer with the experts of a layer, and a gate with fewer rows."""
    config = {name: getattr(layer, name) for name in argument_names(type(layer))}
    config |= {"gate": gate, "name": layer.name, "dtype": layer.dtype_policy}
    config |= {} if tasks is None else {"tasks": tasks}
    new = type(layer)(**{**config, **changes})
    if not layer.trainable:  # Else each part has its own flag.
        new.trainable = False
    return new


def _with_rows(gate, rows):
    """Build a gate that has the weights of some rows of a gate."""
    if len(rows) == gate.num_gates:
        return gate
    changes: dict[str, Any] = {"num_gates": len(rows)}
    if getattr(gate, "initial_choices", None) is not None:
        changes["initial_choices"] = "random"

    def take(value, shape):
        axis = int(np.flatnonzero(np.not_equal(value.shape, shape))[0])
        size = gate.num_gates, shape[axis] // len(rows)
        value = value.reshape(*shape[:axis], *size, *shape[axis + 1 :])
        return value.take(rows, axis=axis).reshape(shape)

    return narrowed_gate(gate, gate.num_experts, take, **changes)
