"""What a gate says about one call."""

from typing import Any, NamedTuple

from keras import ops

from dselectk_keras.distribution import num_replicas
from dselectk_keras.gates._dispatch import dispatch
from dselectk_keras.gates.inputs import check_same_shape
from dselectk_keras.ops import mix
from dselectk_keras.utils import Tensor


class Routing(NamedTuple):
    """The weights of one call of a gate, which mix, dispatch or merge the experts.

    A gate's `compute_weights` sets the first seven; the gate itself adds the others.

    Args:
        weights: The weights over the experts, `([batch,] [num_gates,] n)`.
        probabilities: The distribution from which a stochastic gate draws its weights.
        selectors: The weights of each selector, `([batch,] [num_gates,] k, n)`.
        bits: The relaxed bits of each selector, `([batch,] [num_gates,] k, m)`.
        logits: The logits of the experts, `([batch,] [num_gates,] n)`.
        load: The probability of each expert of being chosen under noise.
        used: Booleans `([num_gates,] n)`: the experts in use, if they are fixed.
        per_example: Whether the weights have a batch axis.
        max_experts: The most nonzero weights of one gate, once it has decided.
        valid: Which examples count, booleans `(batch,)`; `None` is all.
        examples: What a regularizer compares, of the rank of the routing inputs.
    """

    weights: Tensor
    probabilities: Tensor = None
    selectors: Tensor = None
    bits: Tensor = None
    logits: Tensor = None
    load: Tensor = None
    used: Any = None
    per_example: bool = False
    max_experts: int | None = None
    valid: Tensor = None
    examples: Tensor = None

    # Combining experts.

    def mix(self, experts: Any) -> Tensor:
        """Compute the weighted sum of the experts' outputs, a list or a tensor."""
        is_list = isinstance(experts, list)
        if is_list:
            check_same_shape([expert.shape for expert in experts])
        count, n = len(experts) if is_list else experts.shape[1], self.weights.shape[-1]
        if count != n:
            raise ValueError(
                f"This gate was built for {n} experts. Received: {count}. Create a new "
                "gate for another number of experts."
            )
        return mix(experts, self.weights, self.per_example, self.used)

    def dispatch(
        self, bank: Any, inputs: Tensor, capacity: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mix the experts of a bank, each evaluated only for examples that chose it.

        Args:
            bank: A bank that can dispatch.
            inputs: The inputs of the experts, `(batch, ...)`.
            capacity: The most examples of an expert, as a multiple of an even share of
                the choices. Choices beyond it are dropped; `None` drops nothing.

        Returns:
            The mixture, and the number of dropped choices, or `None`.
        """
        weights = self.weights
        gates = weights.shape[1] if len(weights.shape) == 3 else 1
        chosen = min(weights.shape[-1], self.max_experts * gates)
        return dispatch(bank, inputs, weights, chosen, capacity, self.valid)

    def merge(
        self, bank: Any, inputs: Tensor, per_layer: bool, training: bool | None
    ) -> Tensor:
        """Evaluate experts with weighted means of the parameters of a bank's experts.

        With `per_layer`, each layer of the experts has its own gate.
        """
        weights = self.weights
        if per_layer:
            weights = ops.unstack(weights, weights.shape[-2], axis=-2)
        return bank.call_merged(inputs, weights, self.per_example, training)

    def part(self, begin: int, end: int | None = None) -> "Routing":
        """The routing to some of the experts, whose weights need not sum to one."""
        used = None if self.used is None else self.used[..., begin:end]
        return self._replace(weights=self.weights[..., begin:end], used=used)

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

    def over_batch(self, penalty: Tensor, reduction: str) -> Tensor:
        """Make a sum over the examples of this call a `"sum"` or `"mean"` of the batch.

        A static gate has one row, whatever the batch is.
        """
        if not self.per_example:
            return penalty
        if reduction == "mean":
            return penalty / self.num_examples()
        # Keras averages over the replicas.
        return penalty * num_replicas()
