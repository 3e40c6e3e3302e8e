"""A mixture of experts whose gate looks at the experts' hidden outputs."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.baselines.attentive import AttentiveGate, AttentiveInputs
from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates.inputs import RouterInputs
from dselectk_keras.gates.record import record_call
from dselectk_keras.layers import MoE
from dselectk_keras.models.architectures import ARCHITECTURES, mixtures_of
from dselectk_keras.utils import Shape, Tensor


@keras.saving.register_keras_serializable(package="dselectk_keras")
class AttentiveMoE(MoE):
    r"""An `MoE` that evaluates all experts before its `AttentiveGate`.

    $$
    y = \sum_{i=1}^{n} g_i\bigl(G(x), E_1(x), \dots, E_n(x)\bigr) \, f_i(x)
    $$

    $E_i(x)$ is the hidden output of expert $i$: the input of its last layer. `distill`
    turns the trained model into a model with another gate, for which this layer is an
    `MoE`.

    Args:
        experts: `DenseExperts` of two layers or more, or `Experts` with copies of a
            functional or sequential model.
        gate: An `AttentiveGate` that is not built yet.
        per_example: `True`.
        routing_network: A Keras layer between the inputs and the gate, $G$.
        dispatch: For another gate (see `MoE`).
        sum_features: Whether each expert is the sum of its features (see `MoE`).
        side_by_side: `False`, since the gate is per-example.
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
        self.build_bank(self.experts, inputs_shape)
        if self._is_attentive:
            shape = (None, self.experts.num_experts)
            hidden_shape = self._build_hidden(inputs_shape)
            self.gate.build_for(shape, routing_shape, hidden_shape)
        super().build_parts(inputs_shape, routing_shape)

    def combine(
        self, inputs: Tensor, router_inputs: RouterInputs, training: bool | None
    ) -> Tensor:
        if not self._is_attentive:
            return super().combine(inputs, router_inputs, training)
        outputs, hidden = self._call_experts(inputs, training)
        routing = self.gate.route(AttentiveInputs(*router_inputs, hidden), training)
        outputs = self.summed(outputs)
        mixture = ops.cast(routing.mix(outputs), self.gate.compute_dtype)
        record_call(self.gate, routing, outputs, mixture)
        return mixture

    def inference_weights(self, inputs: Tensor, router_inputs: RouterInputs) -> Tensor:
        if not self._is_attentive:
            return super().inference_weights(inputs, router_inputs)
        _, hidden = self._call_experts(inputs, training=False)
        return self.gate.expert_weights(AttentiveInputs(*router_inputs, hidden))

    @property
    def _is_attentive(self):
        return isinstance(self.gate, AttentiveGate)

    def _build_hidden(self, inputs_shape):
        """Prepare for the hidden outputs, and return their shape."""
        bank: Any = self.experts
        is_dense = isinstance(bank, DenseExperts)
        experts = getattr(bank, "experts", [])
        if bank.activity_regularizer is not None or not (
            len(bank.units) > 1
            if is_dense
            else experts and all(hasattr(expert, "layers") for expert in experts)
        ):
            raise ValueError(
                "An attentive gate looks at the input of each expert's last layer. "
                f"Received: {bank!r}. Use `DenseExperts` of two layers or more, or "
                "`Experts` with copies of a functional or sequential model, without "
                "`activity_regularizer`."
            )
        if is_dense:
            return (*bank.compute_output_shape(inputs_shape)[:-1], bank.units[-2])
        models = [
            keras.Model(each.inputs[0], [*each.outputs, each.layers[-1].input])
            for each in experts
        ]
        # Functions, not models: the bank tracks their layers already.
        self._models = [model.__call__ for model in models]
        return (None, bank.num_experts, *models[0].outputs[-1].shape[1:])

    def _call_experts(self, inputs: Tensor, training: bool | None = None) -> Any:
        """Compute the outputs of all experts, and their hidden outputs."""
        bank: Any = self.experts
        if not isinstance(bank, DenseExperts):
            pairs = zip(self._models, bank.split(inputs), strict=True)
            outputs = [model(x, training=training) for model, x in pairs]
            return [bank.stack(each) for each in zip(*outputs, strict=True)]
        x = hidden = ops.cast(inputs, bank.compute_dtype)
        for layer in range(len(bank.units)):
            hidden, x = x, bank.call_layer(layer, x, training)
        return x, hidden


@ARCHITECTURES.register("attentive")
def attentive(inputs, tasks, experts, gate, per_example, *, routing_network=None):
    """Shared experts, with one `AttentiveGate` per task.

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Section 5.
    """
    gate = gate.with_num_gates(len(tasks))
    options = {"routing_network": routing_network, "name": "attentive"}
    return mixtures_of(AttentiveMoE(experts, gate, per_example, **options), inputs)
