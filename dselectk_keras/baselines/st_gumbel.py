"""The straight-through Gumbel gate."""

from typing import Any

from keras import ops

from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import first_largest, gumbel_noise, softmax
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import Initializer


@GATES.register("st_gumbel")
class STGumbelGate(LogitGate):
    r"""One expert, drawn with Gumbel noise, with a straight-through gradient.

    $$
    g_i(x) = \begin{cases} 1 - \mathrm{sg}(p_i) + p_i & i = \arg\max_j p_j \\
    0 & \text{otherwise} \end{cases}, \qquad
    p = \mathrm{softmax}\Bigl(\frac{W x + \varepsilon}{\tau}\Bigr)
    $$

    in training, where $\varepsilon$ is Gumbel noise and sg stops the gradient. The
    weight is exactly 1, and its gradient is that of $p_i$. At inference there is no
    noise: the expert with the largest logit has the weight 1. A static gate has
    parameters in place of $W x$, and one draw per batch.

    Args:
        temperature: $\tau$: a number, or a schedule of the step. The SMEAR paper
            anneals 10 at a rate of 1e-6 on text, its release not below 0.5:
            `Ramp(10.0, 0.5, end=2_995_732)`.
        kernel_initializer: For the kernel or static logits. `None` is uniform in ±0.05.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to layer-normalize the routing inputs and experts' kernels.
        **kwargs: `z_reg`, the weight of the router z-loss, and the arguments of `Gate`.

    Example:
        >>> gate = STGumbelGate(kernel_initializer="zeros", seed=0)
        >>> mixed = gate([keras.ops.ones((1, 1)), 3 * keras.ops.ones((1, 1))])
        >>> keras.ops.convert_to_numpy(mixed).tolist()
        [[1.0]]

    Reference:
        Jang et al., "Categorical Reparameterization with Gumbel-Softmax" (ICLR 2017),
        Equations 1 and 2 and Section 2.2; Muqeeth et al., "SMEAR" (2023), Section 2.
    """

    def __init__(
        self,
        temperature: Any = 1.0,
        kernel_initializer: Initializer = None,
        use_bias: bool = False,
        normalize: bool = False,
        **kwargs: Any,
    ):
        super().__init__(kernel_initializer, use_bias, normalize, **kwargs)
        self.temperature = check_schedule(temperature, "temperature", positive=True)
        self.make_generator()

    def max_experts(self, once_decided: bool = False) -> int:
        return 1

    def compute_weights(self, inputs, training, step) -> Routing:
        logits, noisy = self.kept_logits(inputs, training)
        if training:
            noisy = noisy + gumbel_noise(ops.shape(logits), self.generator)
        weights = ops.cast(first_largest(noisy), "float32")
        if training:
            p = softmax(noisy, value_at(self.temperature, step))
            # Subtract first: 1 + p - p may not be exactly 1 after rounding.
            weights = weights * (1.0 + (p - ops.stop_gradient(p)))
        else:
            # Of NaN none is the largest: zeros would hide it.
            weights = ops.where(ops.isnan(logits), logits, weights)
        return Routing(weights, logits=logits)
