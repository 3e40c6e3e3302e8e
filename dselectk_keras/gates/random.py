"""The random gate."""

import random
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.dropout import drop_logits
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import float32_weight
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import keep_top_k, softmax
from dselectk_keras.utils import MAX_EXPERTS, Tensor, check_choice, check_count


@GATES.register("random")
class RandomGate(Gate):
    r"""Equal weights on k experts that are drawn at random.

    $$
    g_i = \frac{1[i \in R]}{k}, \qquad R \text{ uniform among the sets of } k
    \text{ experts}
    $$

    By default each training call draws experts, for each example if the gate is
    per-example. At inference all experts have the weight $1 / n$. With `fixed` the
    experts of each gate are drawn once, as a weight that is not trained.

    Args:
        num_nonzeros: The number of experts to draw, $k$.
        fixed: Whether to draw the experts once, from `seed`. If the seed is `None`, a
            random one is used and saved with the gate.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: For a per-example gate; only the number of examples is used.
        experts, training: See `Gate`.

    Example:
        >>> gate = RandomGate(num_nonzeros=2, fixed=True, seed=0)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> sorted(keras.ops.convert_to_numpy(gate.expert_weights()).tolist())
        [0.0, 0.0, 0.5, 0.5]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Figure 5; Wang et al., "AdaMix:
        Mixture-of-Adaptations for Parameter-efficient Model Tuning" (EMNLP 2022),
        Sections 3.1 and 3.3.
    """

    def __init__(self, num_nonzeros: int = 1, fixed: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        check_count("num_nonzeros", num_nonzeros, maximum=MAX_EXPERTS)
        self.num_nonzeros = num_nonzeros
        check_choice("fixed", fixed, (True, False))
        self.fixed = fixed
        if fixed and self.seed is None:
            self.seed = random.randrange(2**31)
        if not fixed:
            self.make_generator()

    def drop_experts(self, weights: Tensor) -> Tensor:
        """Drop experts of fixed gates; others have drawn from those that are left."""
        return super().drop_experts(weights) if self.fixed else weights

    def build_logits(self) -> None:
        """Check the number of experts; there are no logits."""
        n, k = self.num_experts, self.num_nonzeros
        if k > n:
            raise ValueError(
                f"`num_nonzeros` must not exceed the {n} experts. "
                f"Received: num_nonzeros={k}."
            )

    def build(self, experts_shape: Any = None, routing_inputs_shape: Any = None):
        """Create the step, and draw the experts of fixed gates."""
        super().build(experts_shape, routing_inputs_shape)
        if self.fixed:
            shape = (*self.gate_shape, self.num_experts)
            self._chosen = float32_weight(self, "chosen", shape, self._draw, False)

    def compute_weights(self, routing_inputs, training, step) -> Routing:
        """Compute equal weights for the drawn experts."""
        batch = (ops.shape(routing_inputs)[0],) if self.per_example else ()
        shape = (*batch, *self.gate_shape, self.num_experts)
        if self.fixed:
            chosen = ops.convert_to_tensor(self._chosen)
            return Routing(ops.broadcast_to(chosen, shape))
        if not training:
            return Routing(ops.ones(shape, "float32") / self.num_experts)
        draws = keras.random.uniform(shape, seed=self.generator, dtype="float32")
        kept = keep_top_k(
            drop_logits(draws, self.expert_dropout, self.generator), self.num_nonzeros
        )
        return Routing(softmax(ops.where(kept > -float("inf"), 0.0, kept)))

    def _draw(self, shape, dtype=None):
        """Draw the weights of fixed gates."""
        # NumPy guarantees that the raw numbers of a bit generator never change.
        ranks = np.random.PCG64(self.seed).random_raw(shape).argsort(-1).argsort(-1)
        return (ranks < self.num_nonzeros).astype("float32") / self.num_nonzeros
