"""How many experts a gate uses."""

import numpy as np

from dselectk_keras.metrics._chosen import chosen


def active_experts(weights, tolerance=0.0):
    r"""Number of experts with a weight above the tolerance.

    $$|\{e : g_e > \text{tolerance}\}|$$

    Args:
        weights: array (..., n) of expert weights; any leading axes, such as
            examples, tasks or records.
        tolerance: largest weight that still counts as none. Leave it at zero
            for gates with exact zeros; a softmax needs a small one.
            Defaults to `0.0`.

    Returns:
        Integer array (...) of counts; a NumPy integer for weights (n,).

    Example:
        >>> active_experts([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).tolist()
        [2, 1]

    Reference:
        Hazimeh et al., DSelect-k, NeurIPS 2021
        (https://arxiv.org/abs/2106.03760).
    """
    return np.count_nonzero(chosen(weights, tolerance), axis=-1)
