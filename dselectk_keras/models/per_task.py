"""Extract the sub-model of one task."""

from typing import Any

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
            `"omoe"`. Its gates must be static and binary (see `condense`). It may be
            condensed already.
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
    model = condensed(model, tolerance)
    mixtures = flatten(_mixture(model.get_layer("mmoe"), name))
    task, (label,) = tasks[name], group_tasks([tasks[name]])
    index = model.tasks.index(task)
    group, indices = next(
        item for item in group_tasks(model.tasks).items() if index in item[1]
    )
    if task.tower != "sum":
        towers = model.get_layer(f"towers_{group}").sliced([indices.index(index)])
        towers.name = f"towers_{label}"
        mixtures = towers(mixtures)
    config = model.get_layer(f"predict_{group}").get_config()
    config |= {"names": [name], "name": f"predict_{label}"}
    return MultitaskModel(
        model.input,
        Predict.from_config(config)(mixtures),
        tasks=[task],
        label_average=model.task_losses.label_average,
        name=f"{model.name}_{label}",
    )


def _mixture(layer, name):
    """Compute the mixture of one task with a layer for this task alone."""
    row = layer.task_names.index(name) if layer.gate.num_gates > 1 else 0
    choices, _, logits = layer.gate.chosen_experts()
    bank, gate = narrowed(layer, choices[row : row + 1], logits[row : row + 1])
    options = {"name": layer.name, "dtype": layer.dtype_policy, "stacked": True}
    options["sum_features"] = layer.sum_features
    options["side_by_side"] = layer.side_by_side
    return MMoE(bank, gate, [name], **options)(layer.input)
