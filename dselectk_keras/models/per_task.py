"""Extract the sub-model of one task."""

from typing import Any

from dselectk_keras.layers import MMoE
from dselectk_keras.models.condense import condense, narrowed
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.rebuild import layers_to_replace
from dselectk_keras.models.task import group_tasks
from dselectk_keras.models.towers import Predict, flatten


def per_task(model: Any, name: str, tolerance: float = 0.0) -> MultitaskModel:
    """Extract the sub-model of one task: the experts it uses, its gate and its tower.

    For example, if 128 tasks share 32 experts and each task uses four of them, the
    sub-model has four experts.

    Args:
        model: A `MultitaskModel` with one `MMoE` layer, such as the architectures
            `"mmoe"` and `"omoe"` have. Its gates must be static and binary (see
            `condense`). It may be condensed already.
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
    if name not in tasks:
        raise ValueError(
            f"The model has no task of the name {name!r}. "
            f"Its tasks: {', '.join(tasks) or 'none'}."
        )
    model = condense(model, tolerance)
    layers = layers_to_replace(model, MMoE)
    if len(layers) > 1:
        raise ValueError(
            "`per_task` needs a model with exactly one `MMoE` layer. Received: a model "
            f"with {len(layers)}."
        )
    mixtures = flatten(_own_mixture(layers[0], name)(layers[0].input))
    task, (label,) = tasks[name], group_tasks([tasks[name]])
    index = model.tasks.index(task)
    group, indices = next(
        item for item in group_tasks(model.tasks).items() if index in item[1]
    )
    if task.tower != "sum":
        towers = _layer(model, f"towers_{group}").sliced([indices.index(index)])
        towers.name = f"towers_{label}"
        mixtures = towers(mixtures)
    config = _layer(model, f"predict_{group}").get_config()
    config |= {"names": [name], "name": f"predict_{label}"}
    return MultitaskModel(
        model.input,
        Predict.from_config(config)(mixtures),
        tasks=[task],
        label_average=model.task_losses.label_average,
        name=f"{model.name}_{label}",
    )


def _layer(model, name):
    """Get a layer that `build_multitask_model` has named after its tasks."""
    found = [layer for layer in model.layers if layer.name == name]
    if not found:
        raise ValueError(
            "`per_task` needs a model of `build_multitask_model`, whose towers it "
            f"finds by name. Received: a model without a layer {name!r}."
        )
    return found[0]


def _own_mixture(layer, name):
    """Build the layer with the experts and the gate of one task."""
    row = layer.task_names.index(name) if layer.gate.num_gates > 1 else 0
    chosen = layer.gate.chosen_experts()
    one = slice(row, row + 1)
    bank, gate = narrowed(layer, chosen.choices[one], chosen.logits[one])
    names = {"name": layer.name, "dtype": layer.dtype_policy}
    return MMoE(bank, gate, [name], stacked=True, **names)
