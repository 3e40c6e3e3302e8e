"""Reachability regularizer."""

from keras import ops

from dselectk_keras.regularizers.registry import REGULARIZERS
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer


@REGULARIZERS.register("reachability")
class ReachabilityRegularizer(ScheduledRegularizer):
    r"""Keeps selectors away from codes that belong to no expert.

    $$
    \xi \sum_s \frac{1}{\max(\sum_i r_{s,i}, 10^{-6})}
    $$

    When the number of experts is not a power of two, some binary codes belong to
    no expert, and a selector may put weight on them. The term is 1 for a selector
    that puts none there. The floor keeps it finite for a selector that puts all
    of its weight there.

    Args:
        weight: $\xi$: a number, a schedule, or a callable of the step.

    Call arguments:
        inputs: Tensor `(..., n)`, the weights of each selector over the experts.

    Example:
        >>> float(ReachabilityRegularizer()([[0.25, 0.25, 0.0]]))
        2.0

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix B.2.
    """

    of_weights = False

    def __init__(self, weight=1.0):
        super().__init__(weight)

    def term(self, inputs):
        """The sum of the reciprocal reachable masses."""
        mass = ops.sum(ops.cast(inputs, "float32"), axis=-1)
        return ops.sum(1.0 / ops.maximum(mass, 1e-6))
