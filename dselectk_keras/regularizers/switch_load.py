"""Switch load regularizer."""

from collections.abc import Sequence

from keras import ops

from dselectk_keras.regularizers.scheduled import REGULARIZERS, ScheduledRegularizer
from dselectk_keras.utils import Tensor


@REGULARIZERS.register("switch_load")
class SwitchLoadRegularizer(ScheduledRegularizer):
    r"""Load balancing: the auxiliary loss of the Switch Transformer.

    $$
    w \, n \sum_{i=1}^n f_i P_i
    $$

    where $f_i$ is the share of the choices in the batch that are expert $i$, and $P_i$
    is the mean over the batch of its probability, a softmax over all logits without
    noise. $f_i$ gets no gradient. Equal shares give $w$, and all tokens at one expert
    give up to $w \, n$. In the paper, each token has one choice; with top-k it has $k$.
    Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step. The paper uses
            0.01.

    Call arguments:
        inputs: The weights and the probabilities, each `(batch, n)` or `(batch, g, n)`.
            Examples that do not count have zeros in both.

    Example:
        >>> weights = [[0.75, 0.0], [0.75, 0.0]]
        >>> probabilities = [[0.75, 0.25], [0.75, 0.25]]
        >>> float(SwitchLoadRegularizer(1.0)((weights, probabilities)))
        1.5

    Reference:
        Fedus et al., "Switch Transformers: Scaling to Trillion Parameter Models with
        Simple and Efficient Sparsity" (JMLR 2022), Equations 4 to 6.
    """

    sees_probabilities = True

    def term(self, inputs: Sequence[Tensor]) -> Tensor:
        """Compute the sum over the experts, times their number."""
        weights, probabilities = map(ops.convert_to_tensor, inputs)
        chosen = ops.stop_gradient(_shares(weights > 0))
        return weights.shape[-1] * ops.sum(chosen * _shares(probabilities))


def _shares(values):
    """The experts' shares of a sum over the batch."""
    total = ops.sum(ops.cast(values, "float32"), axis=0)
    return total / ops.maximum(ops.sum(total, axis=-1, keepdims=True), 1e-7)
