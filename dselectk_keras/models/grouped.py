"""Outputs of a model by group of tasks, for steps, and by task name, for users."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from dselectk_keras._keras import calls_in, names_of_outputs
from dselectk_keras.models.label_reader import LabelReader
from dselectk_keras.models.towers import Predict
from dselectk_keras.utils import Tensor


class Grouped(NamedTuple):
    """The outputs of a model in a step.

    Args:
        groups: For each group of similar tasks, one tensor `(batch, tasks, outputs)`.
        others: The outputs of no task, by name.
    """

    groups: list[Tensor]
    others: dict[str, Any]


def by_group(readers: Sequence[LabelReader], outputs: Any) -> Grouped:
    """Stack the outputs of a model, a dict by name or one tensor, unless they are."""
    if isinstance(outputs, Grouped):
        return outputs
    groups = [reader.predictions(outputs) for reader in readers]
    return Grouped(groups, _others(readers, outputs))


def by_name(readers: Sequence[LabelReader], outputs: Any, names: Any) -> Any:
    """Split stacked outputs into a dict that has these names, in their order."""
    if not isinstance(outputs, Grouped):
        return outputs
    found = dict(outputs.others)
    for reader, group in zip(readers, outputs.groups, strict=True):
        found |= {task.name: group[:, t] for t, task in enumerate(reader.tasks)}
    return {name: found[name] for name in names}


def graph_by_group(readers: Sequence[LabelReader], model: Any) -> keras.Model:
    """Build a model of the same layers whose outputs are `Grouped`.

    Outputs that are all those of one `Predict` are not split into tasks first.
    """
    outputs, split = model.output, {}
    for call in calls_in(model):
        layer = call.operation
        if isinstance(layer, Predict) and layer.names is not None:
            names = names_of_outputs(layer.names)
            ids = dict(zip(names, map(id, call.outputs), strict=True))
            split[tuple(ids[name] for name in layer.names)] = call

    def stacked(reader):
        if isinstance(outputs, dict):
            call = split.get(tuple(id(outputs[task.name]) for task in reader.tasks))
            if call is not None:
                return call.operation.without_names()(*call.input_tensors)
        return reader.predictions(outputs)

    groups = [stacked(reader) for reader in readers]
    found = Grouped(groups, _others(readers, outputs))
    return keras.Model(model.input, found, name=f"{model.name}_by_group")


def _others(readers, outputs):
    """The outputs of no task, by name."""
    if not isinstance(outputs, dict):
        return {}
    names = {task.name for reader in readers for task in reader.tasks}
    return {name: outputs[name] for name in outputs if name not in names}
