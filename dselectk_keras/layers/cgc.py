"""Customized gate control: shared experts, and experts of each task."""

from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import with_mask
from dselectk_keras.gates.inputs import RouterInputs
from dselectk_keras.gates.record import record_call
from dselectk_keras.initializers import copy_layer
from dselectk_keras.layers.arguments import check_gate, task_names
from dselectk_keras.layers.gated_experts import BY_GATE, GatedExperts
from dselectk_keras.utils import (
    MAX_EXPERTS,
    Shape,
    Tensor,
    check_count,
)

# What has an input for each task, in errors.
SEPARATE = 'Gates with per_example="by_gate"'
# Offset between the fixed seeds of shared experts and of task experts.
TASK_SEEDS = 500_009


@keras.saving.register_keras_serializable(package="dselectk_keras")
class CGC(GatedExperts):
    r"""Customized gate control: each task mixes shared experts and its own experts.

    $$
    y_t = \sum_{i=1}^{n} g_{t,i}(x_t) \, f_i(x_s)
    + \sum_{j=1}^{s} g_{t,n+j}(x_t) \, f_{t,j}(x_t)
    $$

    The first layer of a model has one input, $x_t = x_s = x$. A CGC on top of another
    CGC has one input per task, and one for the shared experts. Its experts need
    `shared_input=False`, its per-example gates `per_example="by_gate"`, and the layer
    below needs a `shared_gate`, which computes the input of the shared experts. Layers
    chained in this way are progressive layered extraction (PLE). Without task experts,
    the layer is an `MMoE` with `stacked=True`.

    As in `MoE`, per-example gates choose experts for each position of the leading axes
    of their routing inputs. The axis of the tasks follows these axes: it is axis 1, or
    of tokens `(batch, length, features)`, axis 2.

    Args:
        experts: The bank of the $n$ shared experts, or a list of Keras layers. The
            task experts have the same settings.
        gate: A gate that is not built yet. The layer has a copy of it with one gate
            per task. Its weights are for the shared experts first, then for the
            experts of the task.
        tasks: The number of tasks, or a list of their names or of `Task`.
        num_task_experts: $s$, the number of task experts per task.
        per_example: Whether the weights depend on the inputs. With `"by_gate"`, each
            task has its own routing inputs, `(batch, tasks, features)`. Those of the
            shared gate, if there is one, come last.
        shared_gate: A gate that mixes all experts for the next layer. Its weights are
            for the shared experts first, then for the experts of each task in turn.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The input of all experts, `(batch, ...)`. For experts with
            `shared_input=False`, `(batch, tasks + 1, ...)`, with the input of the
            shared experts last.
        routing_inputs, training, mask: See `MoE`.

    Returns:
        A tensor `(batch, tasks, ...)`, or `(batch, tasks + 1, ...)` if there is a
        shared gate; of routed tokens, `(batch, length, tasks, ...)`.

    Example:
        >>> x = keras.ops.ones((2, 3))
        >>> gate, shared_gate = SoftmaxGate(), SoftmaxGate()
        >>> first = CGC(DenseExperts(4, [8]), gate, 5, shared_gate=shared_gate)
        >>> first(x).shape
        (2, 6, 8)
        >>> bank = DenseExperts(4, [8], shared_input=False)
        >>> last = CGC(bank, SoftmaxGate(), 5, per_example="by_gate")
        >>> last(first(x)).shape
        (2, 5, 8)

    Reference:
        Tang et al., "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning
        (MTL) Model for Personalized Recommendations" (RecSys 2020), Sections 4.1 and
        4.2.
    """

    default_name = "cgc"

    def __init__(
        self,
        experts: Any,
        gate: Any,
        tasks: Any,
        num_task_experts: int = 1,
        per_example: bool | str = False,
        shared_gate: Any = None,
        **kwargs: Any,
    ):
        self.task_names = task_names(tasks)
        num_tasks = len(self.task_names)
        gate = check_gate(gate).with_num_gates(num_tasks)
        super().__init__(experts, gate, per_example, **kwargs)
        if shared_gate is not None and getattr(shared_gate, "num_gates", 0) is not None:
            raise ValueError(
                "`shared_gate` must be a single gate, such as `SoftmaxGate()`. "
                f"Received: {shared_gate!r} with num_gates="
                f"{getattr(shared_gate, 'num_gates', None)}."
            )
        self.tasks = num_tasks if tasks == num_tasks else self.task_names
        self.num_task_experts = num_task_experts = check_count(
            "num_task_experts", num_task_experts, 0, MAX_EXPERTS
        )
        self.shared_gate = shared_gate
        self.task_experts: Any = None
        if num_task_experts:
            task_experts = self.experts.resized(num_tasks * num_task_experts)
            self.task_experts = copy_layer(task_experts, TASK_SEEDS)

    @property
    def stacked_inputs(self) -> bool:
        """True if every task has its own input."""
        return not self.experts.shared_input

    def build(self, inputs_shape: Shape, routing_inputs_shape: Any = None) -> None:
        is_said = self.per_example in (False, BY_GATE)
        if self.stacked_inputs and routing_inputs_shape is None and not is_said:
            raise ValueError(
                f"The experts of {self.name!r} have an input for each task. Whether "
                "its gates have, too, must be said. Received: per_example=True and no "
                'routing inputs. Set per_example="by_gate", or pass routing inputs '
                "for all gates."
            )
        super().build(inputs_shape, routing_inputs_shape)

    def build_parts(self, inputs_shape: Shape, routing_shape: Shape | None) -> None:
        for_tasks: Any = routing_shape
        for_shared = routing_shape
        if self.per_example == BY_GATE:
            self._check_entries(SEPARATE, for_tasks, self.shared_gate is not None)
            batch, _, features = for_tasks
            for_shared = batch, features
            for_tasks = batch, len(self.task_names), features
        batch, *rest = inputs_shape
        if self.stacked_inputs:
            self._check_entries("Experts with shared_input=False", inputs_shape)
        for bank in (self.experts, self.task_experts):
            if bank is not None:
                size = [bank.num_experts, *rest[1:]] if self.stacked_inputs else rest
                self.build_bank(bank, (batch, *size))
        n, per_task = self.experts.num_experts, self.num_task_experts
        self.gate.build_for((None, n + per_task), for_tasks)
        if self.shared_gate is not None:
            total = n + per_task * len(self.task_names)
            self.shared_gate.build_for((None, total), for_shared)

    def combine(
        self, inputs: Tensor, router_inputs: RouterInputs, training: bool | None
    ) -> Tensor:
        for_tasks, for_shared = self._by_gate(router_inputs)
        n = self.experts.num_experts
        routing = self.gate.route(for_tasks, training)
        shared, own = self._outputs(inputs, router_inputs.valid, training)
        mixtures = routing.part(0, n).mix(shared)
        if own is not None:
            mixtures = mixtures + self._mix_own(own, routing.part(n).weights)
        record_call(self.gate, routing, shared, mixtures, own)
        if self.shared_gate is not None:
            routing = self.shared_gate.route(for_shared, training)
            last = routing.part(0, n).mix(shared)
            if own is not None:
                last = last + routing.part(n).mix(own)
            both = (shared,) if own is None else (shared, own)
            record_call(self.shared_gate, routing, both, last)
            mixtures = ops.concatenate([mixtures, ops.expand_dims(last, 1)], axis=1)
        return ops.cast(mixtures, self.gate.compute_dtype)

    def _mix_own(self, experts, weights):
        """Mix the experts of each task with the weights `([batch,] tasks, s)`."""
        num_tasks, s = len(self.task_names), self.num_task_experts
        batch, middle = "b" * bool(self.per_example), "xyzuvw"[: len(experts.shape) - 2]
        return ops.einsum(
            f"{batch}ts,bts{middle}->bt{middle}",
            ops.cast(weights, experts.dtype),
            ops.reshape(experts, (-1, num_tasks, s, *ops.shape(experts)[2:])),
        )

    def inference_weights(self, inputs: Tensor, router_inputs: RouterInputs) -> Tensor:
        """Compute the weights of the tasks' gates (see `GatedExperts`)."""
        return super().inference_weights(inputs, self._by_gate(router_inputs)[0])

    def _by_gate(self, router_inputs):
        """Split the inputs into those of the tasks' gates and of the shared gate."""
        if self.per_example != BY_GATE:
            return router_inputs, router_inputs
        x, num_tasks = router_inputs.routing_inputs, len(self.task_names)
        return (
            router_inputs._replace(routing_inputs=x[:, :num_tasks]),
            router_inputs._replace(routing_inputs=x[:, -1]),
        )

    def _outputs(self, inputs, valid, training):
        """Evaluate the shared experts, and the task experts if there are any."""
        inputs_of_tasks = inputs_of_shared = inputs
        if self.stacked_inputs:
            split, n = len(self.task_names), self.experts.num_experts
            inputs_of_shared = ops.repeat(inputs[:, split:], n, axis=1)
            inputs_of_tasks = ops.repeat(
                inputs[:, :split], self.num_task_experts, axis=1
            )
            if valid is not None:
                inputs_of_shared = with_mask(inputs_of_shared, valid)
                inputs_of_tasks = with_mask(inputs_of_tasks, valid)
        shared = self.experts(inputs_of_shared, training=training)
        if self.task_experts is None:
            return shared, None
        return shared, self.task_experts(inputs_of_tasks, training=training)

    def _check_entries(self, what, shape, least=1):
        """Raise an error unless axis 1 is for the tasks, and for what they share."""
        size = len(self.task_names) + 1
        if len(shape) < 3 or shape[1] not in range(size - 1 + least, size + 1):
            raise ValueError(
                f"{what} need the inputs of {size - 1} tasks, and of what is shared, "
                f"on the axis after those that are routed: (batch, {size}, ...). "
                f"Received: {tuple(shape)}. Set a `shared_gate` in the layer below, "
                "and for one choice per sequence pass pooled routing inputs."
            )
