"""A mixture of experts."""

import keras

from dselectk_keras.experts import ExpertBank, Experts
from dselectk_keras.gates import Gate
from dselectk_keras.gates.gate import split_pair
from dselectk_keras.utils import revive, with_name


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MoE(keras.Layer):
    r"""A bank of experts, mixed by a gate.

    $$
    y = \sum_{i=1}^{n} g_i(v) \, f_i(x)
    $$

    Args:
        experts: A bank of experts, or a list of Keras layers.
        gate: A gate that is not built yet. One that holds several gates gives as
            many mixtures.
        per_example: Whether the weights depend on the inputs, rather than being
            the same for all examples.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The experts' input $x$, which is also what a per-example gate looks
            at; or a tuple `(inputs, routing_inputs)` when it looks at another $v$.
        training: Passed on to the experts and the gate.

    Returns:
        The mixture `(batch, ...)`, or `(batch, num_gates, ...)`.

    Example:
        >>> moe = MoE(DenseExperts(4, [8]), DSelectKGate(2), per_example=True)
        >>> moe(keras.ops.ones((2, 3))).shape
        (2, 8)
    """

    def __init__(self, experts, gate, per_example=False, **kwargs):
        super().__init__(**with_name(kwargs, "moe"))
        experts, gate = revive(experts), revive(gate)
        if isinstance(experts, (list, tuple)):
            experts = Experts([revive(expert) for expert in experts])
        if not isinstance(experts, ExpertBank):
            raise ValueError(
                "`experts` must be a bank, such as `DenseExperts(8, [64])` or "
                "`Experts(layer, 8)`, or a list of Keras layers. "
                f"Received: {experts!r}."
            )
        if not isinstance(gate, Gate):
            raise ValueError(
                "`gate` must be a gate, such as `DSelectKGate(num_nonzeros=2)`. "
                f"Received: {gate!r}."
            )
        self.experts = experts
        self.gate = gate
        self.per_example = per_example

    def build(self, input_shape):
        """Build the experts and the gate."""
        inputs, routing = self._split(input_shape)
        if not self.experts.built:
            self.experts.build(inputs)
        experts = (None, self.experts.num_experts)
        if not self.gate.built:
            self.gate.build((experts, routing) if self.per_example else experts)
        self.built = True

    def call(self, inputs, training=None):
        """Evaluate the experts and mix them."""
        inputs, routing_inputs = self._split(inputs)
        experts = self.experts(inputs, training=training)
        if self.per_example:
            return self.gate((experts, routing_inputs), training=training)
        return self.gate(experts, training=training)

    def expert_weights(self, inputs=None):
        """The weights over the experts, as at inference.

        Args:
            inputs: What the layer is called on; needed if the gate is per-example.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`.
        """
        if not self.per_example:
            return self.gate.expert_weights()
        if inputs is None:
            raise ValueError(
                f"The gate of {self.name!r} is per-example: pass the inputs, or "
                "(inputs, routing_inputs), to see the weights for them."
            )
        return self.gate.expert_weights(self._split(inputs)[1])

    def routing_inputs(self, inputs):
        """What a per-example gate looks at when the layer is called on `inputs`."""
        return self._split(inputs)[1]

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "experts": keras.saving.serialize_keras_object(self.experts),
            "gate": keras.saving.serialize_keras_object(self.gate),
            "per_example": self.per_example,
        }

    def _split(self, inputs):
        if self.per_example and isinstance(inputs, list) and len(inputs) == 2:
            # A model that is loaded from a file has lists where it had tuples. A
            # list of two numbers is a shape.
            inputs = inputs if isinstance(inputs[1], int) else tuple(inputs)
        inputs, routing_inputs = split_pair(inputs)
        if not self.per_example and routing_inputs is not None:
            raise ValueError(
                f"{self.name!r} has per_example=False and takes no routing inputs. "
                "Received: a tuple of two. Set per_example=True, or pass the inputs "
                "alone."
            )
        return inputs, inputs if routing_inputs is None else routing_inputs
