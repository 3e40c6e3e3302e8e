"""Predictions of a batch in one array per group of tasks, and by name, for users."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dselectk_keras.models.label_reader import LabelReader
from dselectk_keras.utils import Tensor


class Grouped(NamedTuple):
    """The outputs for a batch: a tensor per group of tasks, and others by name."""

    groups: list[Tensor]
    others: dict[str, Any]


def by_group(readers: Sequence[LabelReader], outputs: Any) -> Any:
    """Stack the outputs of a model, if they are a dict by name."""
    if not isinstance(outputs, dict):
        return outputs
    names = {task.name for reader in readers for task in reader.tasks}
    others = {name: outputs[name] for name in outputs if name not in names}
    return Grouped([reader.predictions(outputs) for reader in readers], others)


def by_name(readers: Sequence[LabelReader], outputs: Any, names: Any) -> Any:
    """Split stacked outputs into a dict that has these names, in their order."""
    if not isinstance(outputs, Grouped):
        return outputs
    found = dict(outputs.others)
    for reader, group in zip(readers, outputs.groups, strict=True):
        found |= {task.name: group[:, t] for t, task in enumerate(reader.tasks)}
    return {name: found[name] for name in names}
