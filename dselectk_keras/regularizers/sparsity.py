"""Sparsity regularizer."""

import keras
from keras import ops

from dselectk_keras.regularizers.scheduled import ScheduledRegularizer
from dselectk_keras.utils import Tensor


@keras.saving.register_keras_serializable("dselectk_keras")
class SparsityRegularizer(ScheduledRegularizer):
    r"""Penalizes the logarithm of each expert's probability of being open.

    $$
    \lambda \sum_i \log \psi_i
    $$

    It is called on the logarithms $\log \psi$. The term lowers small probabilities
    most. It has no lower bound: without a task loss, they converge to 0.

    Args:
        weight: $\lambda$: a number, a schedule, or a callable of the step.

    Example:
        >>> float(SparsityRegularizer(0.5)([-1.0, -2.0]))
        -1.5

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix D.
    """

    def term(self, inputs: Tensor) -> Tensor:
        """Compute the sum of the logarithms."""
        return ops.sum(ops.cast(inputs, "float32"))
