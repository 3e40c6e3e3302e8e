"""Importance regularizer."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.ops import coefficient_of_variation
from dselectk_keras.regularizers.scheduled import WeightsRegularizer
from dselectk_keras.utils import Tensor, check_flags


@keras.saving.register_keras_serializable("dselectk_keras")
class ImportanceRegularizer(WeightsRegularizer):
    r"""Load balancing: penalizes unequal total weights of the experts over a batch.

    $$
    w \, \mathrm{CV}\Bigl(\sum_x p_x\Bigr)
    $$

    where CV is the coefficient of variation, or with `squared` its square, and $p_x$
    are the gate's weights. Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step.
        squared: Whether to square the coefficient of variation. Shazeer et al. do,
            Krishnamurthy et al. do not.

    Example:
        >>> float(ImportanceRegularizer(0.5)([[1.0, 0.0], [1.0, 0.0]]))
        0.5

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equation 7;
        Shazeer et al. (ICLR 2017), Equations 6 and 7.
    """

    def __init__(self, weight: Any, squared: bool = False):
        super().__init__(weight)
        check_flags(squared=squared)
        self.squared = squared

    def term(self, inputs: Tensor) -> Tensor:
        """Compute the coefficient of variation of the batch's sums, or its square."""
        importance = ops.sum(ops.cast(inputs, "float32"), axis=0)
        variation = coefficient_of_variation(importance)
        return ops.sum(ops.square(variation) if self.squared else variation)
