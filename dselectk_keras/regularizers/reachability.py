"""Reachability regularizer."""

import keras
from keras import ops

from dselectk_keras.regularizers.scheduled import ScheduledRegularizer
from dselectk_keras.utils import Tensor


@keras.saving.register_keras_serializable("dselectk_keras")
class ReachabilityRegularizer(ScheduledRegularizer):
    r"""Penalizes selectors whose codes belong to no expert.

    $$
    \xi \sum_s \frac{1}{\max(\sum_i r_{s,i}, 10^{-6})}
    $$

    over the weights $r_s$ of each selector. If the number of experts is not a power of
    two, some binary codes belong to no expert. The term is 1 for a selector without
    weight on these codes, and at most $10^6$ for one with all of its weight on them.

    Args:
        weight: $\xi$: a number, a schedule, or a callable of the step.

    Example:
        >>> float(ReachabilityRegularizer(1.0)([[0.25, 0.25, 0.0]]))
        2.0

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix B.2.
    """

    def term(self, inputs: Tensor) -> Tensor:
        """Compute the sum of the reciprocals of the selectors' weight on experts."""
        mass = ops.sum(ops.cast(inputs, "float32"), axis=-1)
        return ops.sum(1.0 / ops.maximum(mass, 1e-6))
