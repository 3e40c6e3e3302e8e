"""Switch load regularizer."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.ops import softmax
from dselectk_keras.regularizers.scheduled import WeightsRegularizer
from dselectk_keras.utils import Tensor


@keras.saving.register_keras_serializable("dselectk_keras")
class SwitchLoadRegularizer(WeightsRegularizer):
    r"""Load balancing: the auxiliary loss of the Switch Transformer.

    $$
    w \, n \sum_{i=1}^n f_i P_i
    $$

    where $f_i$, without a gradient, is the share of the choices in the batch that are
    expert $i$, and $P_i$ is the mean over the batch of its probability, a softmax over
    all logits without noise. Equal shares give $w$, and all tokens at one expert up to
    $w \, n$. Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step. The paper uses
            0.01.

    Example:
        >>> weights = [[0.75, 0.0], [0.75, 0.0]]
        >>> probabilities = [[0.75, 0.25], [0.75, 0.25]]
        >>> float(SwitchLoadRegularizer(1.0)((weights, probabilities)))
        1.5

    Reference:
        Fedus et al., "Switch Transformers" (JMLR 2022), Equations 4 to 6.
    """

    def term(self, inputs: Sequence[Tensor]) -> Tensor:
        """Compute the sum over the experts of the weights and the probabilities."""
        weights, probabilities = map(ops.convert_to_tensor, inputs)
        chosen = ops.stop_gradient(_shares(weights > 0))
        return weights.shape[-1] * ops.sum(chosen * _shares(probabilities))

    def penalty(self, routing: Any, step: Any) -> Tensor:
        """Compute the term of the weights and probabilities (see the base class)."""
        if routing.logits is None or routing.max_experts is None:
            raise ValueError(
                "SwitchLoadRegularizer needs a sparse gate with one logit per expert, "
                "such as `SwitchGate` or `TopKGate`. Received: another gate. Use "
                "`ImportanceRegularizer`."
            )
        parts = routing.weights, softmax(routing.logits)
        return self(tuple(map(routing.as_batch, parts)), step)


def _shares(values):
    """The experts' shares of a sum over the batch."""
    total = ops.sum(ops.cast(values, "float32"), axis=0)
    return total / ops.maximum(ops.sum(total, axis=-1, keepdims=True), 1e-7)
