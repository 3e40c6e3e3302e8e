"""Load regularizer."""

import keras
from keras import ops

from dselectk_keras.ops import coefficient_of_variation
from dselectk_keras.regularizers.scheduled import WeightsRegularizer
from dselectk_keras.utils import Tensor


@keras.saving.register_keras_serializable("dselectk_keras")
class LoadRegularizer(WeightsRegularizer):
    r"""Load balancing: penalizes unequal numbers of examples per expert in a batch.

    $$
    w \, \mathrm{CV}\Bigl(\sum_x P(x)\Bigr)^2
    $$

    where $P_i(x)$ is the probability that a noisy gate sends $x$ to expert $i$ (see
    `ops.top_k_probability`). Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step.

    Example:
        >>> float(LoadRegularizer(0.5)([[1.0, 0.0], [1.0, 0.0]]))
        0.5

    Reference:
        Shazeer et al. (ICLR 2017), Equations 10 and 11.
    """

    def term(self, inputs: Tensor) -> Tensor:
        """Compute the squared coefficient of variation of the batch's loads."""
        load = ops.sum(ops.cast(inputs, "float32"), axis=0)
        return ops.sum(ops.square(coefficient_of_variation(load)))
