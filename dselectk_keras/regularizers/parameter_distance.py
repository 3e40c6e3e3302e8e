"""Parameter distance regularizer."""

from keras import ops

from dselectk_keras.regularizers.registry import REGULARIZERS
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer


@REGULARIZERS.register("parameter_distance")
class ParameterDistanceRegularizer(ScheduledRegularizer):
    r"""Draws networks of the same form together by their parameters.

    $$
    \alpha \sum_{t < u} \lVert \theta_t - \theta_u \rVert^2
    = \alpha \, T \sum_{t=1}^{T} \lVert \theta_t - \bar\theta \rVert^2, \qquad
    \bar\theta = \frac{1}{T} \sum_{t=1}^{T} \theta_t
    $$

    computed in the second form, whose cost grows with $T$ and not with its square.

    Args:
        weight: $\alpha$: a number, a schedule, or a callable of the step.

    Call arguments:
        inputs: A list of tensors `(T, ...)`, the parameters of all networks stacked,
            as a bank's `parameters()` gives them.

    Example:
        >>> regularizer = ParameterDistanceRegularizer(0.5)
        >>> float(regularizer([[[1.0, 2.0], [3.0, 2.0]], [[0.0], [4.0]]]))
        10.0

    Reference:
        Duong et al., "Low Resource Dependency Parsing: Cross-lingual Parameter Sharing
        in a Neural Network Parser" (ACL 2015).
    """

    of_weights = False

    def __init__(self, weight):
        super().__init__(weight)
        if not callable(self.weight) and self.weight < 0:
            raise ValueError(
                "`weight` must not be negative: it draws networks together. "
                f"Received: weight={weight}."
            )

    def term(self, inputs):
        """The sum over all pairs of networks."""
        return sum(_pairs(ops.cast(stacked, "float32")) for stacked in inputs)


def _pairs(stacked):
    centered = stacked - ops.mean(stacked, axis=0, keepdims=True)
    return stacked.shape[0] * ops.sum(ops.square(centered))
