"""A mixture of experts whose gate looks at the experts' hidden outputs."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.baselines.attentive import AttentiveGate
from dselectk_keras.layers import MoE
from dselectk_keras.models.architectures import ARCHITECTURES
from dselectk_keras.utils import Shape, Tensor


@keras.saving.register_keras_serializable(package="dselectk_keras")
class AttentiveMoE(MoE):
    r"""An `MoE` that evaluates all experts before its `AttentiveGate`.

    $$
    y = \sum_{i=1}^{n} g_i\bigl(G(x), E_1(x), \dots, E_n(x)\bigr) \, f_i(x)
    $$

    $E_i(x)$ is the hidden output of expert $i$.
    `distill` turns the trained model into a model with another gate, for which this
    layer is an `MoE`.

    Args:
        experts: A bank with hidden outputs: `DenseExperts` of two layers or more, or
            `Experts` with a `hidden_layer`.
        gate: An `AttentiveGate` that is not built yet.
        per_example: `True`.
        routing_network: A Keras layer between the inputs and the gate, $G$.
        dispatch: For another gate (see `MoE`).
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs, routing_inputs, training, mask: See `MoE`.

    Returns:
        The mixture, as from `MoE`.

    Example:
        >>> experts = DenseExperts(num_experts=4, units=[16, 2])
        >>> moe = AttentiveMoE(experts, AttentiveGate(units=8), per_example=True)
        >>> moe(keras.ops.ones((3, 5))).shape
        (3, 2)

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization in Mixture of
        Experts", Section 5, Figure 5.
    """

    default_name = "attentive_moe"

    def build_parts(self, inputs_shape: Shape, routing_shape: Shape | None) -> None:
        """Build the experts and the gate, for one axis of all routed positions."""
        self.build_bank(self.experts, inputs_shape)
        if self._is_attentive and not self.gate.built:
            hidden = self._hidden(keras.KerasTensor(inputs_shape))["hidden"]
            gate: Any = self.gate
            shape = (None, self.experts.num_experts)
            gate.build(shape, routing_shape, tuple(hidden.shape))
        super().build_parts(inputs_shape, routing_shape)

    def combine(self, inputs: Tensor, looks: dict, training: bool | None) -> Tensor:
        """Evaluate the experts, and then the gate."""
        if not self._is_attentive:
            return super().combine(inputs, looks, training)
        outputs, hidden = self.experts(inputs, training=training, return_hidden=True)
        routing = self.gate.route(**looks, hidden=hidden, training=training)
        return ops.cast(routing.mix(outputs), self.gate.compute_dtype)

    def compute_weights(self, inputs: Tensor, routing_inputs: Tensor) -> Tensor:
        """Compute the weights at inference, for one axis of all routed positions."""
        hidden = self._hidden(inputs) if self._is_attentive else {}
        return self.gate.expert_weights(routing_inputs, **hidden)

    @property
    def _is_attentive(self):
        return isinstance(self.gate, AttentiveGate)

    def _hidden(self, inputs):
        return {"hidden": self.experts(inputs, return_hidden=True)[1]}


@ARCHITECTURES.register("attentive")
def attentive(features, tasks, experts, gate, per_example, *, routing_network=None):
    """Shared experts, with one `AttentiveGate` per task.

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Section 5.
    """
    gate = gate.with_num_gates(len(tasks))
    options = {"routing_network": routing_network, "name": "attentive"}
    return AttentiveMoE(experts, gate, per_example, **options)(features)
