"""Build a multi-task model from the name of its architecture."""

import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras import gates
from dselectk_keras._keras import settings
from dselectk_keras.experts import DenseExperts, ExpertBank
from dselectk_keras.gates import Gate
from dselectk_keras.layers.arguments import task_names
from dselectk_keras.models.architectures import ARCHITECTURES, has_gate, read_options
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.predict import Predict
from dselectk_keras.models.task import Task
from dselectk_keras.models.task_group import group_tasks
from dselectk_keras.utils import check_choice, check_count

MANY_TASKS = 32


def build_multitask_model(
    inputs: Any,
    tasks: Any,
    architecture: str = "mmoe",
    experts: ExpertBank | int | None = None,
    gate: Gate | str | None = None,
    per_example: bool = False,
    label_average: str = "batch",
    task_weighting: Any = None,
    stacked: bool = False,
    **options: Any,
) -> MultitaskModel:
    r"""Build a multi-task model: features, shared experts, and one tower per task.

    $$
    \hat y_t = h_t(m_t), \qquad
    m_t = \begin{cases}
    f_t(x) & \text{single\_task, l2\_constrained, tensor\_factorization} \\
    \sum_u A_{tu} f_u(\dots) & \text{cross\_stitch, after every layer} \\
    f(x) & \text{shared\_bottom} \\
    \sum_i g_i f_i(x) & \text{omoe} \\
    \sum_i g_{t,i} f_i(x) & \text{mmoe} \\
    \sum_i g_{t,i} f_i(x) + \sum_j g_{t,n+j} f_{t,j}(x) & \text{cgc; ple stacks them} \\
    f(x, \sum_i g_{t,i} \theta_i) & \text{smear}
    \end{cases}
    $$

    The model has its losses and metrics (see `MultitaskModel`), so that
    `model.compile(optimizer)` is enough. Tasks that differ only in the name and the
    weight are computed together, in one bank of towers.

    Args:
        inputs: The inputs of the model: a number of features, a shape, a
            `keras.Input`, or a `keras.Model` that encodes its inputs into features. The
            second output of such a model, if any, is the input of per-example gates.
        tasks: A list of `Task`; or a list of names, or a number, for regression tasks.
        architecture: One of the names in `ARCHITECTURES`.
        experts: The bank of experts, or a number of dense experts of 64 units. `None`
            is 8 of them. `"shared_bottom"` takes one expert from the bank, and other
            architectures without a gate take one per task. These are copies. With a
            gate, the model has the bank itself: two models with one bank share its
            weights.
        gate: The gate of `"omoe"`, `"mmoe"`, `"cgc"`, `"ple"` and `"smear"`, or its
            name, such as `"dselect_k"` (see `gates.get`). `None` is `SoftmaxGate()`.
        per_example: Whether the gates depend on the features, as in the papers of MMoE,
            CGC, PLE and SMEAR. By default they are static with every gate, the main
            form of DSelect-k. Some gates cannot be static, and an error says so.
        label_average: How a task's loss is averaged in training, if labels are
            missing: over all examples of the batch (`"batch"`), or over its labels in
            the batch (`"labels"`).
        task_weighting: `None`, or how the weights of the tasks are learned:
            `"uncertainty"`, or an object (see `MultitaskModel`).
        stacked: Whether the output is one tensor with an axis for the tasks, in their
            order, not a dict by task name. With many tasks this is faster, and a
            warning says so. All tasks need the same number of outputs.
        **options: Options of the architecture: `strength=1e-3` for
            `"l2_constrained"`, which should be tuned; `initial_share=0.1` for
            `"cross_stitch"`; `ranks=None` for `"tensor_factorization"` (see
            `TuckerExperts`); `num_task_experts=1` for `"cgc"` and `"ple"`;
            `levels=2` for `"ple"`; `routing_network=None` and `dispatch="auto"` for
            `"omoe"` and `"mmoe"` (see `MoE`).

    Returns:
        A `MultitaskModel` with a dict of outputs `(batch, 1)`, or `(batch,
        num_classes)`, by task name; with `stacked`, one output `(batch, tasks)`, or
        `(batch, tasks, num_classes)`.

    Example:
        >>> model = build_multitask_model(
        ...     inputs=16,
        ...     tasks=[Task("rating", tower=(8,)), Task("click", "binary")],
        ...     experts=DenseExperts(num_experts=4, units=[32]),
        ...     gate=DSelectKGate(num_nonzeros=2),
        ... )
        >>> model.compile("adam")
        >>> model(keras.ops.ones((2, 16)))["rating"].shape
        (2, 1)

    Reference:
        Ma et al., "MMoE" (KDD 2018), Sections 3.1, 4.2 and 5.1, Figure 1.
    """
    options = read_options(architecture, options)
    tasks = _as_tasks(tasks)
    experts, gate = _as_parts(experts, gate)
    check_choice("per_example", per_example, (True, False))
    check_choice("stacked", stacked, (True, False))
    if not stacked:
        _advise_stacking(tasks)
    model_inputs, features = _as_features(inputs)
    if isinstance(features, (list, tuple)):
        looks = per_example and has_gate(architecture)
        features = tuple(features) if looks else features[0]
    share = ARCHITECTURES[architecture]
    mixtures = share(features, tasks, experts, gate, per_example, **options)
    return MultitaskModel(
        model_inputs,
        _towers(mixtures, tasks, stacked),
        tasks=tasks,
        label_average=label_average,
        task_weighting=task_weighting,
        name=f"{architecture}_model",
    )


def _as_parts(experts, gate):
    """Make a bank and a gate of a number and a name."""
    if gate is None or isinstance(gate, str):
        gate = gates.get(gate or "softmax")
    if experts is None or isinstance(experts, int):
        experts = DenseExperts(8 if experts is None else experts, [64])
    if not isinstance(experts, ExpertBank) or not isinstance(gate, Gate):
        raise ValueError(
            "`experts` must be a bank such as `DenseExperts(8, [64])`, and `gate` a "
            f"gate such as `DSelectKGate(2)`. Received: experts={experts!r}, "
            f"gate={gate!r}."
        )
    return experts, gate


def _advise_stacking(tasks):
    """Warn if there are so many tasks that one output for all is much faster."""
    alike = len({task.num_outputs for task in tasks}) == 1
    if alike and len(tasks) > MANY_TASKS:
        warnings.warn(
            f"One output for each of many tasks is slow. Received: {len(tasks)} tasks. "
            "Pass stacked=True for one output with a column per task; labels and "
            "reports stay as they are.",
            stacklevel=3,
        )


def _towers(mixtures, tasks, stacked):
    """Build the towers, one bank per group of tasks; return the outputs."""
    groups, predictions = group_tasks(tasks), []
    wrap = None
    if isinstance(mixtures, tuple):
        mixtures, wrap = mixtures
    if len(mixtures.shape) > 3:
        size = (mixtures.shape[1], -1)
        mixtures = keras.layers.Reshape(size, name="flatten_mixtures")(mixtures)
    for group in groups:
        task = group.tasks[0]
        x = mixtures
        if len(groups) > 1:
            x = ops.take(x, group.indices.tolist(), axis=1)
        hidden: Any = task.tower
        if hidden != "sum":
            towers = DenseExperts(
                len(group.tasks),
                [*hidden, task.num_outputs],
                ["relu"] * len(hidden) + [None],
                shared_input=False,
                name=f"towers_{group.label}",
            )
            x = (wrap(towers) if wrap else towers)(x)
        names = None if stacked else [task.name for task in group.tasks]
        form = task.output_activation, hidden == "sum", names
        predictions.append(Predict(*form, name=f"predict_{group.label}")(x))
    if stacked:
        return _stack(predictions, groups)
    by_name = {name: each for own in predictions for name, each in own.items()}
    return {task.name: by_name[task.name] for task in tasks}


def _stack(predictions, groups):
    """Join the predictions of all groups, in the order of the tasks."""
    widths = {group.tasks[0].num_outputs for group in groups}
    if len(widths) > 1:
        raise ValueError(
            "With stacked=True, all tasks need the same number of outputs. "
            f"Received: tasks with {' and '.join(map(str, sorted(widths)))} outputs."
        )
    order = np.argsort(np.concatenate([group.indices for group in groups]))
    x = ops.concatenate(predictions, axis=1) if len(groups) > 1 else predictions[0]
    if (np.diff(order) < 0).any():
        x = ops.take(x, order.tolist(), axis=1)
    return ops.squeeze(x, -1) if widths == {1} else x


def _as_tasks(tasks):
    if not isinstance(tasks, (list, tuple)):
        tasks = task_names(tasks)
    tasks = [Task(task) if isinstance(task, str) else task for task in tasks]
    if not all(isinstance(task, Task) for task in tasks):
        raise ValueError(
            "`tasks` must be a list of `Task` objects or names, or a number. "
            f"Received: {tasks}."
        )
    task_names([task.name for task in tasks])  # They must be unique.
    for task in tasks:
        for each in (task.loss, *task.metric_names):
            if task.output_activation and settings(each).get("from_logits"):
                raise ValueError(
                    f"The outputs of the task {task.name!r} are probabilities, of "
                    f"which {type(each).__name__} would compute probabilities again. "
                    "Received: from_logits=True. Leave it out."
                )
        reduction = settings(task.loss).get("reduction")
        if reduction in ("sum", "mean_with_sample_weight"):
            raise ValueError(
                f"The model averages the loss of the task {task.name!r} itself. "
                f"Received: reduction={reduction!r}. Leave it out, and use "
                "`label_average`, or `Task(weight=...)`."
            )
    return tasks


def _as_features(inputs):
    """Create the inputs of the model and the features."""
    if isinstance(inputs, int):
        inputs = (check_count("inputs", inputs),)
    if isinstance(inputs, tuple):
        inputs = keras.Input(inputs, name="features")
    if isinstance(inputs, keras.Model):
        model_inputs = keras.tree.map_structure(
            lambda tensor: keras.Input(
                batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name
            ),
            inputs.input,
        )
        return model_inputs, inputs(model_inputs)
    if not isinstance(inputs, keras.KerasTensor):
        raise ValueError(
            "`inputs` must be a number of features, a shape, a `keras.Input`, or a "
            f"`keras.Model` that encodes its inputs. Received: {inputs!r}."
        )
    return inputs, inputs
