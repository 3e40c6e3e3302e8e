"""The switch gate."""

from keras import ops

from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import first_largest, softmax


@GATES.register("switch")
class SwitchGate(LogitGate):
    r"""The most probable expert, with its probability as its weight.

    $$
    g_i(x) = \begin{cases} p_i(x) & i = \arg\max_j p_j(x) \\ 0 & \text{otherwise}
    \end{cases}, \qquad p(x) = \mathrm{softmax}(W x)
    $$

    A static gate has parameters in place of $W x$. The weights sum to the largest
    probability, not to one. All logits get a gradient through this probability. Of
    equal logits, the first is chosen.

    Args:
        kernel_initializer: For the kernel or static logits. `None` is uniform in ±0.05.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to layer-normalize the routing inputs and experts' kernels.
        z_reg: Weight of the router z-loss: a number, a schedule or a
            `RouterZRegularizer`.
        **kwargs: The arguments of `Gate`.

    Example:
        >>> gate = SwitchGate(kernel_initializer="zeros")
        >>> mixed = gate([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])
        >>> keras.ops.convert_to_numpy(mixed).tolist()
        [[0.5]]

    Reference:
        Fedus et al., "Switch Transformers: Scaling to Trillion Parameter Models with
        Simple and Efficient Sparsity" (JMLR 2022), Equations 1 and 2.
    """

    def max_experts(self, once_decided: bool = False) -> int:
        return 1

    def compute_weights(self, inputs, training, step) -> Routing:
        logits, kept = self.kept_logits(inputs, training)
        weights = ops.cast(first_largest(kept), "float32") * softmax(kept)
        return Routing(weights, logits=logits)
