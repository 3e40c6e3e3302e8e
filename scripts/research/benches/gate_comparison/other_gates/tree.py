"""The tree gate of COMET."""

from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.chosen_experts import one_expert_each
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import smooth_step
from dselectk_keras.regularizers import EntropyRegularizer
from dselectk_keras.schedules import check_schedule, value_at


@keras.saving.register_keras_serializable("other_gates")
class TreeGate(Gate):
    r"""Sparse weights from k binary trees, whose leaves are the experts.

    $$
    g_i = \frac{\sum_{j=1}^{k} v_{ji} \exp(a_{ji})}
               {\sum_{j=1}^{k} \sum_{l=1}^{n} v_{jl} \exp(a_{jl})}, \qquad
    v_{ji} = \prod_{q \in \mathrm{path}(i)} S(z_{jq})^{c_{iq}}
             (1 - S(z_{jq}))^{1 - c_{iq}}
    $$

    $S$ is the smooth step, and $c_{iq} = 1$ if the path to expert $i$ turns left at
    node $q$. A tree has $n - 1$ nodes for any number of experts, so that the weights
    always sum to one. The entropy of each $v_j$ leads the trees to one expert each.

    The paper's local search over permutations of the experts is left out: it learns
    soft permutations before the training, as matrices of a second model.

    Args:
        num_nonzeros: The number of trees, $k$.
        gamma: Width of the smooth step, or a schedule.
        entropy_reg: An `EntropyRegularizer`, or its weight as a number or schedule.
        **kwargs: The arguments of `Gate`.

    Reference:
        Ibrahim et al., "COMET: Learning Cardinality Constrained Mixture of Experts with
        Trees and Local Search" (KDD 2023), Section 4.
    """

    def __init__(self, num_nonzeros=2, gamma: Any = 1.0, entropy_reg=None, **kwargs):
        super().__init__(**kwargs)
        self.num_nonzeros = num_nonzeros
        self.gamma = check_schedule(gamma, "gamma", positive=True)
        self.entropy_reg = EntropyRegularizer.get(entropy_reg, "entropy_reg")

    def build_logits(self):
        """Create the logits of the nodes and of the leaves."""
        shape = (*self.gate_shape, self.num_nonzeros)
        start = keras.initializers.RandomUniform(-0.01, 0.01)
        self._nodes = Logits(self, "node", (*shape, self.num_experts - 1), start)
        leaves = (*shape, self.num_experts)
        self._leaves = Logits(self, "leaf", leaves, "random_uniform")

    def max_experts(self, once_decided=False):
        """One expert for each tree, once they have decided."""
        return self.num_nonzeros if once_decided else None

    def compute_weights(self, inputs, training, step):
        """Compute the normalized sum of the trees."""
        nodes, leaves = (
            logits(inputs.routing_inputs) for logits in (self._nodes, self._leaves)
        )
        bits = smooth_step(nodes, value_at(self.gamma, step))
        # Node q has the children 2 q + 1 and 2 q + 2. The last n nodes are leaves.
        reached = [ops.ones_like(leaves[..., 0])]
        for q in range(self.num_experts - 1):
            left = reached[q] * bits[..., q]
            reached += [left, reached[q] - left]
        trees = ops.stack(reached[self.num_experts - 1 :], axis=-1)
        # Of leaves that are reached, so that their sum does not vanish.
        largest = ops.where(trees > 0, leaves, -float("inf"))
        largest = ops.stop_gradient(ops.max(largest, axis=(-2, -1), keepdims=True))
        powers = trees * ops.exp(ops.minimum(leaves - largest, 0.0))
        total = ops.sum(powers, axis=(-2, -1), keepdims=True)
        return Routing(ops.sum(powers / total, axis=-2), selectors=trees, codes=bits)

    def compute_penalties(self, routing, step):
        """Compute the entropy of the trees."""
        if self.entropy_reg is None:
            return {}
        return {"entropy": routing.penalty(self.entropy_reg, routing.selectors, step)}

    def assign_logits(self, weights, slack):
        """Set each tree to one expert, with nodes far beyond the smooth step.

        With `slack`, they are inside of it.
        """
        chosen, log_shares = one_expert_each(weights, self.num_nonzeros)
        nodes = np.zeros((*chosen.shape, self.num_experts - 1))
        for place, expert in np.ndenumerate(chosen):
            child = self.num_experts - 1 + int(expert)
            while child:
                nodes[(*place, (child - 1) // 2)] = 0.5 if child % 2 else -0.5
                child = (child - 1) // 2
        gamma = float(value_at(self.gamma, self.step))
        self._nodes.assign(nodes * gamma * (1.0 - slack if slack else 2.0))
        shape = (*chosen.shape, self.num_experts)
        self._leaves.assign(np.broadcast_to(log_shares[..., None], shape))
