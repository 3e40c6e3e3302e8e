"""The number of experts that a gate uses."""

from typing import Any

import numpy as np

from dselectk_keras.metrics._base import used_experts


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
