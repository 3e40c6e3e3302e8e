"""The softmax gate."""

from typing import Any

from keras import ops

from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import softmax
from dselectk_keras.utils import Initializer, check_number


@GATES.register("softmax")
class SoftmaxGate(LogitGate):
    r"""Dense weights: a softmax over all experts.

    $$
    g(x) = \mathrm{softmax}(W x)
    $$

    for a per-example gate. A static gate is the softmax of $n$ parameters.

    Args:
        kernel_initializer: For the kernel or static logits. `None` is uniform in ±0.05.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to layer-normalize the routing inputs and experts' kernels.
        min_weight: At inference, smaller weights are set to 0 and the others scaled to
            sum to one, so that `dispatch=True` saves time. At most $1 / n$; 0 keeps
            all weights.
        **kwargs: `z_reg`, the weight of the router z-loss, and the arguments of `Gate`.

    Example:
        >>> gate = SoftmaxGate(kernel_initializer="zeros")
        >>> mixed = gate([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])
        >>> keras.ops.convert_to_numpy(mixed).tolist()
        [[2.0]]

    Reference:
        Ma et al., "MMoE" (KDD 2018), Equation 8.
    """

    def __init__(
        self,
        kernel_initializer: Initializer = None,
        use_bias: bool = False,
        normalize: bool = False,
        min_weight: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(kernel_initializer, use_bias, normalize, **kwargs)
        check_number("min_weight", min_weight, minimum=0, maximum=1)
        self.min_weight = min_weight

    def build_logits(self) -> None:
        """Create the logits."""
        if self.min_weight * self.num_experts > 1 + 1e-6:
            raise ValueError(
                f"`min_weight` must be at most 1 / {self.num_experts}, so that some "
                f"weight is as large. Received: min_weight={self.min_weight}."
            )
        super().build_logits()

    def max_experts(self, once_decided: bool = False) -> int | None:
        """The number of weights that can be as large as `min_weight`, at inference."""
        limited = once_decided and self.min_weight
        return int(1 / self.min_weight + 1e-6) if limited else None

    def compute_weights(self, routing_inputs, training, step) -> Routing:
        """Compute the softmax of the logits."""
        logits, kept = self.kept_logits(routing_inputs, training)
        weights = softmax(kept)
        if training or not self.min_weight:
            return Routing(weights, logits=logits)
        # Rounding may put equal weights below 1 / n.
        kept = ops.where(weights >= self.min_weight * (1 - 1e-5), weights, 0.0)
        weights = kept / ops.sum(kept, axis=-1, keepdims=True)
        return Routing(weights, logits=logits)
