"""The softmax gate."""

from dselectk_keras.gates.gate import GateOutputs
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.registry import GATES
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
        **kwargs: The arguments of `Gate`.

    Call arguments:
        experts, routing_inputs, training: See `Gate`.

    Example:
        >>> gate = SoftmaxGate(kernel_initializer="zeros")
        >>> mixed = gate([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])
        >>> keras.ops.convert_to_numpy(mixed).tolist()
        [[2.0]]

    Reference:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts" (KDD 2018), Equation 8.
    """

    def compute_weights(self, routing_inputs, training, step) -> GateOutputs:
        """Compute the softmax of the logits."""
        return GateOutputs(softmax(self.kept_logits(routing_inputs, training)))
