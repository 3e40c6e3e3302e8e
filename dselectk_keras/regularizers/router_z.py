"""Router z-loss."""

import keras
from keras import ops

from dselectk_keras.regularizers.scheduled import ScheduledRegularizer
from dselectk_keras.utils import Tensor


@keras.saving.register_keras_serializable("dselectk_keras")
class RouterZRegularizer(ScheduledRegularizer):
    r"""Penalizes large logits of a gate, which are imprecise in half precision.

    $$
    w \sum_x \Bigl(\log \sum_{i=1}^n e^{z_i(x)}\Bigr)^2
    $$

    where $z_i(x)$ are the logits of the experts, without noise. A gate divides the sum
    by the number of examples. Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step. The paper uses
            0.001.

    Example:
        >>> round(float(RouterZRegularizer(0.5)([[0.0, 0.0]])), 4)
        0.2402

    Reference:
        Zoph et al., "ST-MoE" (2022), Equation 5.
    """

    def term(self, inputs: Tensor) -> Tensor:
        """Compute the sum of the squared logarithms."""
        logits = ops.cast(inputs, "float32")
        return ops.sum(ops.square(ops.logsumexp(logits, axis=-1)))
