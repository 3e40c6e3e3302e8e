"""A mixture of experts."""

import keras

from dselectk_keras.layers.routed import RoutedExperts


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MoE(RoutedExperts):
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
        routing: A Keras layer between the inputs and a per-example gate: a network
            of the gate's own, or a pooling layer.
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

    Reference:
        Jacobs et al., "Adaptive Mixtures of Local Experts" (1991); Krishnamurthy et
        al., "Improving Expert Specialization in Mixture of Experts", Section 3.
    """

    default_name = "moe"

    def call(self, inputs, training=None):
        """Evaluate the experts and mix them."""
        inputs, routing = self._split(inputs)
        if not self.per_example:
            return self.gate(self.experts(inputs, training=training), training=training)
        routing = self.routed(routing)
        if self.gate.sees_hidden:
            experts, hidden = self.experts(
                inputs, training=training, return_hidden=True
            )
            routing = (routing, hidden)
        else:
            experts = self.experts(inputs, training=training)
        return self.gate((experts, routing), training=training)
