"""Extract the sub-model of one task."""

import itertools
from typing import Any

import numpy as np

from dselectk_keras._keras import (
    call_again,
    calls_for,
    calls_in,
    names_of_outputs,
    recomputed,
)
from dselectk_keras.gates.chosen_experts import ChosenExperts
from dselectk_keras.layers import MMoE
from dselectk_keras.models.condense import condensed, narrowed
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.task import group_tasks
from dselectk_keras.models.towers import Predict, flatten


def per_task(model: Any, name: str, tolerance: float = 0.0) -> MultitaskModel:
    """Extract the sub-model of one task: the experts it uses, its gate and its tower.

    For example, if 128 tasks share 32 experts and each task uses four of them, the
    sub-model has four experts.

    Args:
        model: A model of `build_multitask_model` with the architecture `"mmoe"` or
            `"omoe"`, or a `MultitaskModel` of layers of your own. Its gates must be
            static and binary (see `condense`). It may be condensed already. Layers
            behind the towers are kept. They must read this task alone.
        name: The name of the task.
        tolerance: See `condense`.

    Returns:
        A `MultitaskModel` with only this task, without `task_weighting`, not compiled.

    Example:
        >>> model = build_multitask_model(5, ["a", "b"], gate=TopKGate(2))
        >>> small = per_task(model, "b")
        >>> small.get_layer("mmoe").experts.num_experts
        2

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 2.
    """
    tasks = {task.name: task for task in getattr(model, "tasks", ())}
    if name not in [*tasks]:
        raise ValueError(
            f"The model has no task of the name {name!r}. "
            f"Its tasks: {', '.join(tasks) or 'none'}."
        )
    model, task = condensed(model, tolerance), tasks[name]
    (label,) = group_tasks([task])
    return MultitaskModel(
        model.input,
        {name: _output(model, task)},
        tasks=[task],
        label_average=model.task_losses.label_average,
        name=f"{model.name}_{label}",
    )


def _output(model, task):
    """Compute the output of a task from its own experts and tower, and what follows."""
    if not isinstance(model.output, dict):
        _check_stacked(model)
        return _prediction(model, task)
    output, parts = model.output[task.name], _parts(model)
    calls = calls_for(model, output, parts)
    read = [id(each) for call in calls for each in call.input_tensors]
    own = {key: parts[key] for key in (*read, id(output)) if key in parts}
    if len({name for _, name in own.values()}) > 1:
        readers = dict.fromkeys(
            call.operation.name
            for call in calls
            for each in call.input_tensors
            if parts.get(id(each), (None, task.name))[1] != task.name
        )
        raise ValueError(
            f"The output of the task {task.name!r} must read no other task. Received: "
            f"a model in which the layers {', '.join(readers)} do. Leave them out of "
            "the model that you pass, and call them on its predictions."
        )
    replaced = {}
    for key, (layer, name) in own.items():
        if isinstance(layer, Predict):
            replaced[key] = _prediction(model, task)
        elif name is not None:
            replaced[key] = _mixture(model, layer, name)[name]
    return recomputed(model, output, replaced)


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
        elif isinstance(layer, MMoE) and has_towers:
            names = [None]
        elif isinstance(layer, MMoE) and not layer.stacked:
            names = layer.task_names
            if not isinstance(layer.tasks, int):
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


def _prediction(model, task):
    """Compute the predictions of a task with layers for this task alone."""
    (label,), index = group_tasks([task]), model.tasks.index(task)
    group, indices = next(
        item for item in group_tasks(model.tasks).items() if index in item[1]
    )
    mixtures = _mixture(model, model.get_layer("mmoe"), task.name, stacked=True)
    mixtures = flatten(mixtures)
    if not task.sums_features:
        towers = model.get_layer(f"towers_{group}").sliced([indices.index(index)])
        towers.name = f"towers_{label}"
        mixtures = towers(mixtures)
    config = model.get_layer(f"predict_{group}").get_config()
    config |= {"names": [task.name], "name": f"predict_{label}"}
    return Predict.from_config(config)(mixtures)[task.name]


def _mixture(model, layer, name, stacked=False):
    """Compute the mixture of one task with a layer for this task alone."""
    row = layer.task_names.index(name) if layer.gate.num_gates > 1 else 0
    chosen = [values[row : row + 1] for values in layer.gate.chosen_experts()]
    bank, gate = narrowed(layer, ChosenExperts(*chosen))
    options = {"name": layer.name, "dtype": layer.dtype_policy, "stacked": stacked}
    options["sum_features"] = layer.sum_features
    options["side_by_side"] = layer.side_by_side
    call = next(each for each in calls_in(model) if each.operation is layer)
    return call_again(call, MMoE(bank, gate, [name], **options))
