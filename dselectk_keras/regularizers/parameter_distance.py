"""Parameter distance regularizer."""

import keras
from keras import ops

from dselectk_keras.regularizers.scheduled import ScheduledRegularizer


@keras.saving.register_keras_serializable(package="dselectk_keras")
class ParameterDistanceRegularizer(ScheduledRegularizer):
    r"""Draws networks of the same form together by their parameters.

    $$
    \alpha \sum_{t < u} \lVert \theta_t - \theta_u \rVert^2
    = \alpha \, T \sum_{t=1}^{T} \lVert \theta_t - \bar\theta \rVert^2, \qquad
    \bar\theta = \frac{1}{T} \sum_{t=1}^{T} \theta_t
    $$

    computed in the second form, whose cost grows with $T$ and not with its square.

    Args:
        strength: $\alpha$: a number, a schedule, or a callable of the number of calls.

    Call arguments:
        inputs: A list of tensors `(T, ...)`, the parameters of all networks stacked,
            as a bank's `parameters()` gives them.

    Returns:
        A float32 scalar.

    Example:
        >>> regularizer = ParameterDistanceRegularizer(0.5)
        >>> float(regularizer([[[1.0, 2.0], [3.0, 2.0]], [[0.0], [4.0]]]))
        10.0

    Reference:
        Duong et al., "Low Resource Dependency Parsing: Cross-lingual Parameter Sharing
        in a Neural Network Parser" (ACL 2015).
    """

    of_weights = False

    weight_name = "strength"

    def __init__(self, strength):
        super().__init__(strength)
        if not callable(self.scheduled.value) and self.scheduled.value < 0:
            raise ValueError(
                "`strength` must not be negative: it draws networks together. "
                f"Received: strength={strength}."
            )

    def term(self, inputs):
        """The sum over all pairs of networks."""
        return sum(_pairs(ops.cast(stacked, "float32")) for stacked in inputs)


def _pairs(stacked):
    centered = stacked - ops.mean(stacked, axis=0, keepdims=True)
    return stacked.shape[0] * ops.sum(ops.square(centered))
