"""Sparsity regularizer."""

from keras import ops

from dselectk_keras.regularizers.registry import REGULARIZERS
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer


@REGULARIZERS.register("sparsity")
class SparsityRegularizer(ScheduledRegularizer):
    r"""Lowers the probabilities that experts are open, the small ones most.

    $$
    \lambda \sum_i \log \psi_i
    $$

    It has no lower bound: each probability goes to 0 unless the task's loss keeps
    it up.

    Args:
        weight: $\lambda$: a number, a schedule, or a callable of the step.

    Call arguments:
        inputs: Tensor of the logarithms $\log \psi$, of any shape. The gate has them
            as log-sigmoids, which stay finite where the probability rounds to 0.

    Example:
        >>> float(SparsityRegularizer(0.5)([-1.0, -2.0]))
        -1.5

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix D.
    """

    of_weights = False

    def __init__(self, weight):
        super().__init__(weight)

    def term(self, inputs):
        """The sum of the logarithms."""
        return ops.sum(ops.cast(inputs, "float32"))
