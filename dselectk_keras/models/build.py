"""Build a multi-task model from the name of its architecture."""

import numbers
from typing import Any

import keras

from dselectk_keras.experts import DenseExperts, ExpertBank
from dselectk_keras.gates import GATES, Gate
from dselectk_keras.layers.arguments import as_bank
from dselectk_keras.layers.gated_experts import BY_GATE
from dselectk_keras.models.architectures import ARCHITECTURES
from dselectk_keras.models.grad_norm import GradNorm
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.task import as_tasks
from dselectk_keras.models.towers import add_towers
from dselectk_keras.utils import check_choice, check_count, check_flags, shown

# Options for `MultitaskModel`; others are for the architecture.
OF_MODEL = ("label_average", "task_weighting")


def build_multitask_model(
    inputs: Any,
    tasks: Any,
    architecture: str = "mmoe",
    experts: ExpertBank | int = 8,
    gate: Gate | str = "softmax",
    per_example: bool = False,
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
        experts: The bank of experts, or a number of dense experts of 64 units.
            Architectures without a gate have copies: `"shared_bottom"` has one expert,
            others have one per task. With a gate, the model has the bank itself: two
            models with one bank share its weights.
        gate: The gate of `"omoe"`, `"mmoe"`, `"cgc"`, `"ple"` and `"smear"`, or one of
            the names in `GATES`, such as `"dselect_k"`.
        per_example: Whether the gates depend on the features, as in the papers of MMoE,
            CGC, PLE and SMEAR, or are static, the main form of DSelect-k.
        stacked: Whether the output is one tensor with an axis for the tasks, not a dict
            by task name. All tasks need the same number of outputs.
        **options: `label_average` and `task_weighting` of `MultitaskModel`, which may
            be `"gradnorm"` here, for `GradNorm()` before the towers; and options of the
            architecture: `num_task_experts=1` for `"cgc"` and `"ple"`;
            `levels=2` for `"ple"`; `routing_network=None`, `dispatch="auto"` and
            `side_by_side=False` for `"omoe"` and `"mmoe"` (see `MoE`).

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
    check_flags(stacked=stacked)
    check_choice("per_example", per_example, (True, False, BY_GATE))
    share = ARCHITECTURES.find(architecture)
    tasks = as_tasks(tasks)
    if isinstance(experts, numbers.Integral):
        experts = DenseExperts(experts, [64])
    if isinstance(gate, str):
        gate = GATES.find(gate)()
    of_model = {name: options.pop(name) for name in OF_MODEL if name in options}
    model_inputs, features = _as_features(inputs)
    if not per_example:
        features = features[:1]
    mixtures = share(features, tasks, as_bank(experts), gate, per_example, **options)
    mixtures, wrap = mixtures if isinstance(mixtures, tuple) else (mixtures, None)
    if of_model.get("task_weighting") == "gradnorm":
        of_model["task_weighting"] = GradNorm()
    if isinstance(of_model.get("task_weighting"), GradNorm):
        mixtures = of_model["task_weighting"](mixtures)
    outputs = add_towers(mixtures, tasks, stacked, wrap)
    name = f"{architecture}_model"
    return MultitaskModel(model_inputs, outputs, tasks=tasks, name=name, **of_model)


def _as_features(inputs):
    """Create the inputs of the model, and a list of the features and routing inputs."""
    if isinstance(inputs, numbers.Integral):
        inputs = (check_count("inputs", inputs),)
    if isinstance(inputs, tuple):
        inputs = keras.Input(inputs, name="features")
    if isinstance(inputs, keras.KerasTensor):
        return inputs, [inputs]
    try:
        # A sequential model has one, and says so by another name.
        is_sequence = isinstance(inputs, keras.Sequential)
        known = inputs.inputs[0] if is_sequence else inputs.input
    except AttributeError as error:
        raise ValueError(
            "`inputs` must be a number of features, a shape, a `keras.Input`, or a "
            "`keras.Model` whose inputs are known: one of `keras.Input` tensors, or a "
            "`keras.Sequential` that begins with a `keras.Input`. Received: "
            f"{shown(inputs)}."
        ) from error
    model_inputs = keras.tree.map_structure(
        lambda tensor: keras.Input(
            batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name
        ),
        known,
    )
    features = inputs(model_inputs)
    parts = [*features] if isinstance(features, (list, tuple)) else [features]
    if len(parts) > 2 or not all(isinstance(each, keras.KerasTensor) for each in parts):
        raise ValueError(
            "The outputs of a model as `inputs` must be the features, or a pair of the "
            f"features and the routing inputs. Received: {shown(features)}."
        )
    return model_inputs, parts
