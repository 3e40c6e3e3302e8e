"""A mixture of experts."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.layers._dispatch import dispatch, is_symbolic, num_chosen, pays
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
        dispatch: Whether experts are evaluated only for the examples that chose them,
            which needs a per-example gate with zeros and `DenseExperts` without
            dropout. `"auto"` does where it is likely to be faster, `True` and `False`
            decide. The result is the same. A number is a capacity: each expert has
            that many times an even share of slots, what finds none is dropped, and
            `num_dropped` counts it.
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

    def __init__(
        self,
        experts,
        gate,
        per_example=False,
        routing=None,
        dispatch: Any = "auto",
        **kwargs,
    ):
        super().__init__(experts, gate, per_example, routing, **kwargs)
        self.dispatch = dispatch
        self.num_dropped: Any = None
        if dispatch in ("auto", False):
            return
        if dispatch is not True and not (
            isinstance(dispatch, (int, float)) and dispatch >= 1
        ):
            raise ValueError(
                '`dispatch` must be "auto", True, False, or a capacity of 1 or more. '
                f"Received: dispatch={dispatch!r}."
            )
        if not per_example or not self.experts.can_dispatch:
            raise ValueError(
                "Dispatch needs a per-example gate, and `DenseExperts` without "
                f"dropout. Received: per_example={per_example} and a bank "
                f"{type(self.experts).__name__}."
            )

    def build(self, input_shape):
        """Build the experts and the gate, and see whether to dispatch."""
        super().build(input_shape)
        inputs, _ = self._split(input_shape)
        if self.dispatch not in ("auto", False) and self.gate.max_experts is None:
            raise ValueError(
                f"{type(self.gate).__name__} does not bound how many experts an "
                "example uses. Take a gate such as `TopKGate`, or dispatch=False."
            )
        self._dispatches = (
            self.per_example and pays(self.experts, self.gate, inputs[-1])
            if self.dispatch == "auto"
            else bool(self.dispatch)
        )
        if self._capacity is not None:
            self.num_dropped = self.add_weight(
                name="num_dropped",
                shape=(),
                dtype="int32",
                trainable=False,
                initializer="zeros",
            )

    def call(self, inputs, training=None):
        """Evaluate the experts and mix them."""
        inputs, routing = self._split(inputs)
        if not self.per_example:
            experts = self.experts(inputs, as_list=True, training=training)
            return self.gate(experts, training=training)
        routing = self.routed(routing)
        if self._dispatches and not is_symbolic(inputs):
            weights = self.gate.route(routing, training)
            mixture, dropped = dispatch(
                self.experts,
                inputs,
                weights,
                num_chosen(self.experts, self.gate),
                self._capacity,
                training,
            )
            if dropped is not None:
                self.num_dropped.assign_add(dropped)
            return ops.cast(mixture, self.gate.compute_dtype)
        if self.gate.sees_hidden:
            experts, hidden = self.experts(
                inputs, training=training, return_hidden=True
            )
            routing = (routing, hidden)
        else:
            experts = self.experts(inputs, as_list=True, training=training)
        return self.gate((experts, routing), training=training)

    @property
    def _capacity(self):
        return None if isinstance(self.dispatch, (str, bool)) else self.dispatch

    def get_config(self):
        """The arguments of `__init__`."""
        return {**super().get_config(), "dispatch": self.dispatch}
