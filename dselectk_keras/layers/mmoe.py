"""A mixture of experts for several tasks."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.layers.arguments import check_gate, task_names
from dselectk_keras.layers.moe import MoE
from dselectk_keras.ops import unstack
from dselectk_keras.utils import Tensor, check_flags


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MMoE(MoE):
    r"""Multi-gate mixture of experts: shared experts, and one gate per task.

    $$
    y_t = \sum_{i=1}^{n} g_{t,i}(v) \, f_i(x)
    $$

    The gates of all tasks are computed together. With `num_gates=1`, all tasks share
    one gate, and the layer is OMoE.

    Args:
        experts: A bank of experts, or a list of Keras layers.
        gate: A gate that is not built yet. The layer has a copy of it with one gate
            per task, unless `num_gates` is set to 1.
        tasks: The number of tasks, or a list of their names or of `Task`.
        per_example: Whether the weights depend on the inputs, as in the MMoE paper.
            With `"by_gate"`, each task has its own `routing_inputs`, `(batch, tasks,
            features)`.
        routing_network: A Keras layer between the inputs and per-example gates.
        dispatch: Whether experts are evaluated only for the examples that chose them
            (see `MoE`).
        sum_features: Whether each expert is the sum of its features (see `MoE`).
        side_by_side: Whether the chosen experts are not mixed, but stand side by side
            (see `MoE`).
        stacked: Whether to return one tensor with an axis for the tasks.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs, routing_inputs, training, mask: See `MoE`.

    Returns:
        A list of tensors `(batch, ...)`, one per task; a dict of them if the tasks
        have names; one tensor `(batch, tasks, ...)` if `stacked`, or of routed tokens
        `(batch, length, tasks, ...)`.

    Example:
        >>> mmoe = MMoE(DenseExperts(4, [8]), DSelectKGate(2), ["click", "like"])
        >>> outputs = mmoe(keras.ops.ones((2, 3)))
        >>> {name: output.shape for name, output in outputs.items()}
        {'click': (2, 8), 'like': (2, 8)}

    Reference:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts" (KDD 2018), Equation 7.
    """

    default_name = "mmoe"

    def __init__(
        self,
        experts: Any,
        gate: Any,
        tasks: Any,
        per_example: bool | str = False,
        routing_network: Any = None,
        dispatch: Any = "auto",
        sum_features: bool = False,
        side_by_side: bool = False,
        stacked: bool = False,
        **kwargs: Any,
    ):
        self.task_names = task_names(tasks)
        num_tasks = len(self.task_names)
        if check_gate(gate).num_gates != 1:
            gate = gate.with_num_gates(num_tasks)
        options = per_example, routing_network, dispatch, sum_features, side_by_side
        super().__init__(experts, gate, *options, **kwargs)
        self.tasks = num_tasks if tasks == num_tasks else self.task_names
        check_flags(stacked=stacked)
        self.stacked = stacked

    def arrange(self, combined: Tensor) -> Any:
        mixtures: Any = combined
        num_tasks, axis = len(self.task_names), self.num_routed_axes
        if self.gate.num_gates < num_tasks:
            mixtures = ops.repeat(mixtures, num_tasks, axis=axis)
        if self.stacked:
            return mixtures
        mixtures = unstack(mixtures, axis)
        if self.tasks == num_tasks:
            return mixtures
        return dict(zip(self.task_names, mixtures, strict=True))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor = None) -> Any:
        mask = super().compute_mask(inputs, previous_mask)
        return mask if self.stacked else [mask] * len(self.task_names)

    @property
    def has_gate_axis(self) -> bool:
        return self.stacked
