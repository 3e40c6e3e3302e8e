"""Parameter distance regularizer."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from dselectk_keras.regularizers.scheduled import REGULARIZERS, ScheduledRegularizer
from dselectk_keras.utils import Tensor, check_number


@REGULARIZERS.register("parameter_distance")
class ParameterDistanceRegularizer(ScheduledRegularizer):
    r"""Penalizes distances between the parameters of networks of the same shape.

    $$
    \alpha \sum_{t < u} \lVert \theta_t - \theta_u \rVert^2
    = \alpha \, T \sum_{t=1}^{T} \lVert \theta_t - \bar\theta \rVert^2, \qquad
    \bar\theta = \frac{1}{T} \sum_{t=1}^{T} \theta_t
    $$

    The second form is computed: its cost is linear in $T$.

    Args:
        weight: $\alpha$: a number, a schedule, or a callable of the step.

    Call arguments:
        inputs: A list of tensors `(T, ...)`, the stacked parameters of all networks,
            such as a bank's `parameters()`.

    Example:
        >>> regularizer = ParameterDistanceRegularizer(0.5)
        >>> float(regularizer([[[1.0, 2.0], [3.0, 2.0]], [[0.0], [4.0]]]))
        10.0

    Reference:
        Duong et al., "Low Resource Dependency Parsing: Cross-lingual Parameter Sharing
        in a Neural Network Parser" (ACL 2015).
    """

    def __init__(self, weight: Any):
        super().__init__(weight)
        if not callable(self.weight):
            check_number("weight", weight, minimum=0)

    def term(self, inputs: Sequence[Tensor]) -> Tensor:
        """Compute the sum over all pairs of networks."""
        return sum(_pairs(ops.cast(stacked, "float32")) for stacked in inputs)


def _pairs(stacked):
    centered = stacked - ops.mean(stacked, axis=0, keepdims=True)
    return stacked.shape[0] * ops.sum(ops.square(centered))
