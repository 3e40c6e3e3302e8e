"""The number of experts that a gate uses."""

import math
from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.metrics._base import METRICS, MeanMetric, used_experts, used_mask
from dselectk_keras.utils import Tensor, check_number


def active_experts(weights: Any, tolerance: float = 0.0) -> Any:
    r"""Number of experts with a weight above the tolerance.

    $$|\{e : g_e > \text{tolerance}\}|$$

    Args:
        weights: Array (..., n) of expert weights; any leading axes, such as examples,
            tasks or records.
        tolerance: Largest weight that counts as not used. Keep it at zero for gates
            with exact zeros; a softmax needs a small one.

    Returns:
        Integer array (...) of counts; a NumPy integer for weights (n,).

    Example:
        >>> active_experts([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).tolist()
        [2, 1]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 4 and Table 1.
    """
    return np.count_nonzero(used_experts(weights, tolerance), axis=-1)


@METRICS.register("active_experts")
class ActiveExperts(MeanMetric):
    r"""Mean number of experts with a weight above the tolerance.

    $$
    \frac{1}{N} \sum_x |\{e : g_e(x) > \text{tolerance}\}|
    $$

    With several gates, one per task, it is also the mean over the gates.

    Args:
        tolerance: The largest weight that counts as not used. Keep it at zero for gates
            with exact zeros; a softmax needs a small one.
        name: The metric's name in logs.

    Call arguments:
        weights: Tensor `(..., n)`, the weights of a gate: `(batch, n)`,
            `(batch, g, n)`, or of a static gate. The examples are the first axis.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the mean over the calls so far, 0 before the first.

    Example:
        >>> metric = ActiveExperts()
        >>> float(metric([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
        1.5

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 4 and Table 1.
    """

    layout, axes = "(..., n)", (1, math.inf)

    def __init__(self, tolerance: float = 0.0, name: str = "active_experts") -> None:
        super().__init__(name)
        self.tolerance = check_number("tolerance", tolerance, minimum=0)

    def values(self, weights: Tensor) -> Tensor:
        """Count the experts in use."""
        return ops.sum(used_mask(weights, self.tolerance), axis=-1)
