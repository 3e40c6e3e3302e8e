"""Entropy regularizer."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.ops import entropy
from dselectk_keras.regularizers.scheduled import (
    WeightsRegularizer,
    learned_weights,
)
from dselectk_keras.utils import Tensor, check_choice


@keras.saving.register_keras_serializable("dselectk_keras")
class EntropyRegularizer(WeightsRegularizer):
    r"""Penalizes the entropy of the selectors, so that they become binary earlier.

    $$
    \lambda(t) \sum_{s} \sum_i - r_{s,i} \log(r_{s,i} + 10^{-6})
    $$

    summed over all selectors at the gate's step $t$. As the `weights_regularizer` of a
    gate, it penalizes the entropy of the gate's weights. A per-example gate averages it
    over the examples, or by its argument `reduction`, if it has one, sums it.

    Args:
        weight: $\lambda$: a number, a schedule, or a callable of the step.
        target: `"selectors"` for the entropy of each selector's weights over the
            experts, as in the release; `"bits"` for the sum of the entropies of its
            relaxed bits, as in Section 3.1.3. The two are equal if the number of
            experts is a power of two; otherwise the first leaves out the codes of no
            expert.

    Example:
        >>> regularizer = EntropyRegularizer(0.5)
        >>> round(float(regularizer([[0.5, 0.5]])), 4)
        0.3466

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.3.
    """

    def __init__(self, weight: Any = 1e-6, target: str = "selectors"):
        check_choice("target", target, ("selectors", "bits"))
        super().__init__(weight)
        self.target = target

    def term(self, inputs: Tensor) -> Tensor:
        """Compute the sum of the entropies."""
        return ops.sum(entropy(inputs))

    def penalty(self, routing: Any, step: Any) -> Tensor:
        """Compute the sum or mean over the examples (see `WeightsRegularizer`)."""
        return routing.penalty(self, learned_weights(routing), step)
