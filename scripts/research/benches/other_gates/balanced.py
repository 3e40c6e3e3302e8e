"""Top-k with balancing by a bias, without a loss."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits, float32_weight
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import keep_top_k
from dselectk_keras.schedules import check_schedule, value_at


@keras.saving.register_keras_serializable("other_gates")
class BalancedGate(Gate):
    r"""A Top-k gate of sigmoids, whose choice is balanced over the gates.

    $$
    g_i = \frac{s_i \, 1[i \in T]}{\sum_{j \in T} s_j}, \quad
    s = \mathrm{sigmoid}(W x), \quad T = \mathrm{TopK}(s + b, k), \quad
    b_i \leftarrow b_i + u \, \mathrm{sign}(\bar c - c_i)
    $$

    All gates of the layer share the bias $b$. The load $c_i$ is the number of examples
    and gates that choose expert $i$. A static `TopKGate` refuses a `bias_rate`, because
    a single static gate has no load; static gates of several tasks have one. With
    $k = 1$ the only weight is always 1, and no gradient trains the choice.

    Args:
        num_nonzeros: The number of experts to keep, $k$.
        bias_rate: The change $u$ of the bias in each training step, or a schedule.
        **kwargs: The arguments of `Gate`.

    Reference:
        Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for
        Mixture-of-Experts" (2024), Algorithm 1.
    """

    def __init__(self, num_nonzeros=2, bias_rate: Any = 0.001, **kwargs):
        super().__init__(**kwargs)
        self.num_nonzeros = num_nonzeros
        self.bias_rate = check_schedule(bias_rate, "bias_rate")

    def build_logits(self):
        """Create the logits and the bias."""
        shape = (*self.gate_shape, self.num_experts)
        self._logits = Logits(self, "gate", shape, "random_uniform", use_bias=False)
        self._bias = float32_weight(
            self, "choice_bias", (self.num_experts,), trainable=False
        )

    def max_experts(self, once_decided=False):
        """The number of experts to keep."""
        return self.num_nonzeros

    def compute_weights(self, inputs, training, step):
        """Compute the kept sigmoids, and in training, change the bias."""
        scores = ops.sigmoid(self._logits(inputs.routing_inputs))
        kept = keep_top_k(scores + self._bias, self.num_nonzeros) != -float("inf")
        chosen = ops.cast(kept, "float32")
        if training and self.trainable:
            load = ops.sum(chosen, axis=tuple(range(len(chosen.shape) - 1)))
            change = ops.sign(ops.mean(load) - load)
            self._bias.assign_add(value_at(self.bias_rate, step) * change)
        scores = scores * chosen
        return Routing(scores / ops.sum(scores, axis=-1, keepdims=True))
