"""The softmax gate."""

from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import softmax


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
        z_reg: Weight of the router z-loss: a number, a schedule or a
            `RouterZRegularizer`.
        **kwargs: The arguments of `Gate`.

    Example:
        >>> gate = SoftmaxGate(kernel_initializer="zeros")
        >>> mixed = gate([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])
        >>> keras.ops.convert_to_numpy(mixed).tolist()
        [[2.0]]

    Reference:
        Ma et al., "MMoE" (KDD 2018), Equation 8.
    """

    def compute_weights(self, inputs, training, step) -> Routing:
        logits, kept = self.kept_logits(inputs, training)
        return Routing(softmax(kept), logits=logits)
