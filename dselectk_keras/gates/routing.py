"""The result of one call of a gate."""

from typing import Any, NamedTuple

import keras
from keras import ops

from dselectk_keras._keras import kept_losses
from dselectk_keras.distribution import num_replicas, sum_over_replicas
from dselectk_keras.gates.dispatch import dispatch
from dselectk_keras.ops import mix, unstack
from dselectk_keras.utils import Tensor


class Routing(NamedTuple):
    """The weights of one call of a gate, which mix, dispatch or merge the experts.

    A gate's `compute_weights` sets the first seven; the gate itself adds the others.

    Args:
        weights: The weights over the experts, `([batch,] [num_gates,] n)`.
        probabilities: The distribution from which a stochastic gate draws its weights.
        selectors: The weights of each selector, `([batch,] [num_gates,] k, n)`.
        codes: The relaxed bits of each selector, `([batch,] [num_gates,] k, m)`; where
            it has none, its weights.
        logits: The logits of the experts, `([batch,] [num_gates,] n)`.
        load: The probability with which noise lets each expert be chosen.
        reduction: Whether penalties that are sums over the examples are a `"sum"` or a
            `"mean"`.
        per_example: Whether the weights have a batch axis.
        max_experts: The most nonzero weights of one gate, once it has decided.
        valid: Which examples count, booleans `(batch,)`; `None` is all.
        examples: What a regularizer compares, of the rank of the routing inputs.
    """

    weights: Tensor
    probabilities: Tensor = None
    selectors: Tensor = None
    codes: Tensor = None
    logits: Tensor = None
    load: Tensor = None
    reduction: str = "mean"
    per_example: bool = False
    max_experts: int | None = None
    valid: Tensor = None
    examples: Tensor = None

    # Combining experts.

    def mix(self, experts: Any) -> Tensor:
        """Compute the weighted sum of the experts' outputs, a list or a tensor."""
        is_list = isinstance(experts, list)
        shape = tuple((experts[0] if is_list else experts).shape)
        if not is_list and len(shape) < 3:
            raise ValueError(
                "Experts in one tensor must have the shape (batch, num_experts, ...), "
                "with an axis for their outputs, but (batch, features) is the output "
                f"of one expert. Received: experts of shape {shape}. Pass a list of "
                "the experts' outputs, gate([first, second]), not a tuple; for scalar "
                "outputs, keras.ops.expand_dims(experts, -1)."
            )
        # Sizes may be unknown, or symbols.
        sizes = shape[0], self.weights.shape[0] if self.per_example else None
        if {*map(type, sizes)} == {int} and sizes[0] != sizes[1]:
            raise ValueError(
                "Experts and routing inputs must have the same number of examples. "
                f"Received: experts of shape {shape} and {sizes[1]} routing inputs. "
                "Stack the experts on axis 1, (batch, num_experts, ...), or pass them "
                "as a list."
            )
        return mix(experts, self.weights, self.per_example)

    def dispatch(
        self,
        bank: Any,
        inputs: Tensor,
        capacity: float | None = None,
        when: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Mix the experts of a bank, each evaluated only for examples that chose it.

        The `capacity` of an expert is a multiple of an even share of the choices.
        Choices beyond it are dropped; `None` drops nothing. All experts are evaluated
        unless `when` holds; by default, if an example chose more than `max_experts`.
        Returns the mixture, and the number of dropped choices, or `None`.
        """
        weights = self.weights
        gates = weights.shape[1] if len(weights.shape) == 3 else 1
        chosen = min(weights.shape[-1], self.max_experts * gates)
        return dispatch(bank, inputs, weights, chosen, capacity, self.valid, when)

    def merge(
        self, bank: Any, inputs: Tensor, per_layer: bool, training: bool | None
    ) -> Tensor:
        """Evaluate experts with weighted means of the parameters of a bank's experts.

        With `per_layer`, each layer of the experts has its own gate.
        """
        weights = self.weights
        if per_layer:
            weights = unstack(weights, axis=-2)
        return bank.call_merged(inputs, weights, self.per_example, training)

    def part(self, begin: int, end: int | None = None) -> "Routing":
        """The routing to some of the experts, whose weights need not sum to one."""
        return self._replace(weights=self.weights[..., begin:end])

    # For monitoring.

    def describe_selectors(self) -> dict:
        """Compute tensors `([batch,] [num_gates,] k)`, if there are selectors.

        `"binary"` is 1.0 if a selector has all its weight on one expert, or if all its
        bits are 0 or 1. `"reachable"` is the selector's total weight on experts, as
        opposed to codes of no expert.
        """
        if self.selectors is None:
            return {}
        is_binary = ops.logical_or(self.codes == 0.0, self.codes == 1.0)
        has_one = ops.max(self.selectors, axis=-1) == 1.0
        binary = ops.logical_or(ops.all(is_binary, axis=-1), has_one)
        return {
            "binary": ops.cast(binary, "float32"),
            "reachable": ops.sum(self.selectors, axis=-1),
        }

    # For penalties, which are computed over the examples that are valid.

    def num_examples(self) -> Tensor:
        """Count the examples that are valid, at least 1, in float32."""
        if self.valid is None:
            return ops.cast(ops.maximum(ops.shape(self.weights)[0], 1), "float32")
        return ops.maximum(ops.sum(ops.cast(self.valid, "float32")), 1.0)

    def only_valid(self, x: Tensor, other: float = 0.0) -> Tensor:
        """Replace the rows of examples that are not valid by a number."""
        if self.valid is None or x is None:
            return x
        rows = ops.reshape(self.valid, (-1, *[1] * (len(x.shape) - 1)))
        return ops.where(rows, x, other)

    def as_batch(self, x: Tensor) -> Tensor:
        """Set rows that are not valid to zero; a static gate's `x` becomes one row."""
        x = self.only_valid(x)
        return x if self.per_example else ops.expand_dims(x, 0)

    def penalty(
        self,
        regularizer: Any,
        values: Tensor,
        step: Tensor,
        padding: float = 0.0,
    ) -> Tensor:
        """Compute a regularizer's term, the sum or mean over the valid examples.

        Others have the value `padding`, whose term is 0. A static gate has one row,
        whatever the batch is.
        """
        value = regularizer(self.only_valid(values, padding), step)
        if not self.per_example:
            return value
        if self.reduction == "mean":
            return value / self.num_examples()
        # Keras averages over the replicas.
        return value * num_replicas()


def sum_in_call(layer: keras.Layer, value: Tensor) -> Tensor:
    """Sum a value over the replicas of `tf.distribute`, in a call of a layer."""
    if num_replicas() == 1:
        return value
    with kept_losses(layer):
        return sum_over_replicas(value)
