"""The random gate."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.dropout import drop_logits
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.inputs import check_enough_experts
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import keep_top_k, softmax
from dselectk_keras.utils import MAX_EXPERTS, check_count


@GATES.register("random")
class RandomGate(Gate):
    r"""Equal weights on k experts that are drawn at random in each training call.

    $$
    g_i = \frac{1[i \in R]}{k}, \qquad R \text{ uniform among the sets of } k
    \text{ experts}
    $$

    A per-example gate draws experts for each example. At inference all experts have the
    weight $1 / n$. For experts that are drawn once, use `ChosenGate(k, "random")`.

    Args:
        num_nonzeros: The number of experts to draw, $k$.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: For a per-example gate; only the number of examples is used.
        experts, training: See `Gate`.

    Example:
        >>> gate = RandomGate(num_nonzeros=2, seed=0)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> keras.ops.convert_to_numpy(gate.expert_weights()).tolist()
        [0.25, 0.25, 0.25, 0.25]

    Reference:
        Wang et al., "AdaMix: Mixture-of-Adaptations for Parameter-efficient Model
        Tuning" (EMNLP 2022), Sections 3.1 and 3.3.
    """

    def __init__(self, num_nonzeros: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_nonzeros = check_count(
            "num_nonzeros", num_nonzeros, maximum=MAX_EXPERTS
        )
        self.weight_dropout = 0.0
        self.make_generator()

    def build_logits(self) -> None:
        check_enough_experts(self)

    def compute_weights(self, inputs, training, step) -> Routing:
        batch = (ops.shape(inputs.routing_inputs)[0],) if self.per_example else ()
        shape = (*batch, *self.gate_shape, self.num_experts)
        if not training:
            return Routing(ops.ones(shape, "float32") / self.num_experts)
        draws = keras.random.uniform(shape, seed=self.generator, dtype="float32")
        kept = keep_top_k(
            drop_logits(draws, self.expert_dropout, self.generator), self.num_nonzeros
        )
        return Routing(softmax(ops.where(kept > -float("inf"), 0.0, kept)))
