"""The ReLU router of ReMoE."""

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits, float32_weight
from dselectk_keras.gates.routing import Routing


@keras.saving.register_keras_serializable("other_gates")
class ReLUGate(Gate):
    r"""Weights that are rectified logits, made sparse by an adaptive L1 penalty.

    $$
    g(x) = \frac1n \mathrm{ReLU}(W x), \qquad
    \lambda \leftarrow \lambda \, \alpha^{\mathrm{sign}(a - k)}
    $$

    The penalty is $\lambda \sum_i g_i$. Its coefficient grows while more than k experts
    are active, and falls while there are fewer; $a$ is their mean number. Each gate has
    a coefficient of its own. Weights need not sum to one. Static logits begin near 1,
    so that weights begin near those of a softmax.

    In a static gate an expert that is off gets no gradient, so it never returns. Its
    penalty is therefore zero once k experts or fewer are left.

    Args:
        num_nonzeros: The number of active experts that is aimed at, $k$.
        l1: The first coefficient.
        growth: The factor $\alpha$.
        balanced: Whether the penalty of an expert is multiplied by its load, the part
            of the examples and gates that use it, over k / n.
        **kwargs: The arguments of `Gate`.

    Reference:
        Wang et al., "ReMoE: Fully Differentiable Mixture-of-Experts with ReLU Routing"
        (ICLR 2025), Equations 6 to 9.
    """

    def __init__(self, num_nonzeros=2, l1=1e-8, growth=1.2, balanced=False, **kwargs):
        super().__init__(**kwargs)
        self.num_nonzeros, self.l1, self.growth = num_nonzeros, l1, growth
        self.balanced = balanced

    def build_logits(self):
        """Create the logits and the coefficients."""
        shape, start = (*self.gate_shape, self.num_experts), "random_uniform"
        if not self.per_example:
            start = keras.initializers.RandomUniform(0.95, 1.05)
        self._logits = Logits(self, "gate", shape, start, use_bias=False)
        first = keras.initializers.Constant(self.l1)
        self.coefficient = float32_weight(
            self, "l1", self.gate_shape, first, trainable=False
        )

    def compute_weights(self, inputs, training, step):
        """Rectify the logits, and in training, change the coefficients."""
        logits = self._logits(inputs.routing_inputs)
        weights = ops.relu(logits) / self.num_experts
        if training and self.trainable:
            change = ops.sign(self._surplus(weights))
            self.coefficient.assign(self.coefficient * self.growth**change)
        return Routing(weights)

    def compute_penalties(self, routing, step):
        """Compute the L1 penalty, a mean over the examples."""
        weights = routing.as_batch(routing.weights)
        coefficient = ops.convert_to_tensor(self.coefficient)
        if not self.per_example:
            surplus = self._surplus(routing.weights)
            coefficient = ops.where(surplus > 0, coefficient, 0.0)
        each = ops.expand_dims(coefficient, -1) * weights
        if self.balanced:
            active = ops.cast(weights > 0, "float32")
            load = ops.mean(active, axis=tuple(range(len(active.shape) - 1)))
            each = each * load * (self.num_experts / self.num_nonzeros)
        count = routing.num_examples() if self.per_example else 1.0
        return {"l1": ops.sum(each) / count}

    def _surplus(self, weights):
        """Mean number of active experts of each gate beyond k."""
        active = ops.sum(ops.cast(weights > 0, "float32"), axis=-1)
        if self.per_example:
            active = ops.mean(active, axis=0)
        return active - self.num_nonzeros

    def assign_logits(self, weights, slack):
        """Set the logits to the weights, and those of zeros out of reach."""
        logits = (1.0 - slack) * self.num_experts * weights + slack
        self._logits.assign(np.where(logits > 0, logits, -1.0))
