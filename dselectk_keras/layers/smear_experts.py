"""SMEAR: experts are merged into one expert for each example."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates.inputs import RouterInputs
from dselectk_keras.gates.record import record_call
from dselectk_keras.layers.arguments import check_gate
from dselectk_keras.layers.gated_experts import GatedExperts
from dselectk_keras.utils import Tensor, check_flags


@keras.saving.register_keras_serializable(package="dselectk_keras")
class SmearExperts(GatedExperts):
    r"""One merged expert, whose parameters are the weighted mean of all experts.

    $$
    y = f\Bigl(u, \sum_{i=1}^{n} R_i(v) \, \theta_i\Bigr)
    $$

    Experts are merged for each example. If an example is a sequence or an image, all
    its positions share the merged expert. With `routing_network=
    keras.layers.Identity()`, each position has its own. Only the merged expert is
    evaluated. Merging takes as many multiplications and additions as evaluating an
    expert on $n$ positions. (Section 3 of the paper counts half as many: one operation
    per parameter.) With a static gate, experts are merged once for the whole batch.

    In the paper, experts are adapters, `DenseExperts(n, [m, d], ["swish", None])`,
    whose outputs are added to their inputs. For texts, layer normalization comes
    behind them, for images batch normalization before them. The paper's router is
    `SoftmaxGate(normalize=True)`. With `RandomGate()` and `per_layer=True`, the layer
    is AdaMix.

    Args:
        experts: A bank whose parameters can be merged: `DenseExperts`, or `Experts`
            with stateless copies of one layer.
        gate: A gate that is not built yet: the router $R$.
        per_example: Whether the weights depend on the inputs. With `"by_gate"`, each
            gate has its own `routing_inputs`, `(batch, ..., num_gates, features)`.
        routing_network: A Keras layer between the inputs and the gate. `None` is the
            mean over the axes between the batch and the features, or the gates, without
            the positions that a mask leaves out.
        per_layer: Whether each layer of the experts has its own gate.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The experts' input $u$, `(batch, ..., features)`.
        routing_inputs: The inputs of the router, $v$; by default, `inputs`. In a
            decoder, for example, the encoder's final states.
        training: Passed on to the gate and the merged expert.
        mask: The mask of the inputs, `(batch,)` or `(batch, length)`, if there is
            padding.
        routing_inputs_mask: The mask of the routing inputs, likewise.

    Returns:
        The outputs of the merged expert, `(batch, ...)`; or `(batch, num_gates, ...)`
        if the gate has `num_gates`.

    Example:
        >>> adapters = DenseExperts(4, [2, 6], ["swish", None])
        >>> smear = SmearExperts(adapters, SoftmaxGate(normalize=True))
        >>> smear(keras.ops.ones((3, 5, 6))).shape
        (3, 5, 6)

    Reference:
        Muqeeth et al., "Soft Merging of Experts with Adaptive Routing", Section 3.
    """

    default_name = "smear"
    averages_inputs = True

    def __init__(
        self,
        experts: Any,
        gate: Any,
        per_example: bool | str = True,
        routing_network: Any = None,
        per_layer: bool = False,
        **kwargs: Any,
    ):
        check_flags(per_layer=per_layer)
        if per_layer:
            num_layers = len(getattr(experts, "units", ()))
            if not num_layers:
                raise ValueError(
                    "per_layer=True needs `DenseExperts`, whose layers are known. "
                    f"Received: experts={experts!r}."
                )
            gate = check_gate(gate).with_num_gates(num_layers)
        super().__init__(experts, gate, per_example, routing_network, **kwargs)
        self.per_layer = per_layer
        if keras.backend.backend() == "tensorflow" and per_example:
            # Layers that TensorFlow cannot vectorize, as convolutions, become a loop,
            # which XLA cannot compile.
            self.supports_jit = isinstance(self.experts, DenseExperts)
        self.experts.check_mergeable()

    def build(self, inputs_shape: Any, routing_inputs_shape: Any = None) -> None:
        super().build(inputs_shape, routing_inputs_shape)
        self.experts.check_mergeable()

    def combine(
        self, inputs: Tensor, router_inputs: RouterInputs, training: bool | None
    ) -> Tensor:
        routing = self.gate.route(router_inputs, training)
        merged = routing.merge(self.experts, inputs, self.per_layer, training)
        merged = ops.cast(merged, self.compute_dtype)
        record_call(self.gate, routing, None, merged)
        return merged

    def compute_output_spec(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Any:
        axes = self.num_routed_axes
        flat = keras.KerasTensor((inputs.shape[0], *inputs.shape[axes:]), inputs.dtype)
        spec = self.experts.compute_output_spec(flat)
        gates = self.gate.gate_shape if self.has_gate_axis else ()
        shape = (*inputs.shape[:axes], *gates, *spec.shape[2:])
        return keras.KerasTensor(shape, self.compute_dtype)

    @property
    def has_gate_axis(self) -> bool:
        return super().has_gate_axis and not self.per_layer
