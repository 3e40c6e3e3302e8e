"""The overlap of the experts that tasks use."""

import math
from typing import Any, NamedTuple

import numpy as np

from dselectk_keras.metrics._base import used_experts


class JaccardIndex(NamedTuple):
    """Mean Jaccard index of related and of unrelated pairs of tasks.

    Args:
        related: Mean over pairs of tasks in the same group; NaN without any.
        unrelated: Mean over pairs in different groups; NaN without any.
    """

    related: float
    unrelated: float


def jaccard_index(
    weights: Any, groups: Any = None, tolerance: float = 0.0
) -> JaccardIndex:
    r"""Mean Jaccard index of the expert sets of pairs of tasks.

    With $A_t$ the set of experts that task $t$ uses (weight above the
    tolerance), the mean over pairs $t < u$ of

    $$J(A_t, A_u) = \frac{|A_t \cap A_u|}{|A_t \cup A_u|}$$

    separately for pairs within a group (related tasks) and pairs across groups. It is
    one if two tasks use the same experts and zero if they share none; two empty sets
    count as equal. For per-example gates, take the mean over the examples.

    Args:
        weights: Array (tasks, n) of expert weights.
        groups: One group label per task, or `None`: all tasks are one group, so that
            `related` is the mean over all pairs.
        tolerance: Largest weight that counts as not used.

    Returns:
        A `JaccardIndex(related, unrelated)`; NaN if there are no such pairs.

    Example:
        >>> weights = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        >>> jaccard_index(weights, groups=[0, 0, 1])
        JaccardIndex(related=0.5, unrelated=0.0)

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix C.1.
    """
    sets = used_experts(weights, tolerance)
    if sets.ndim != 2:
        raise ValueError(
            "`weights` must have shape (tasks, experts). Received shape: "
            f"{sets.shape}. Average over the other axes first, or index them."
        )
    groups = np.zeros(len(sets)) if groups is None else np.asarray(groups)
    if groups.shape != (len(sets),):
        raise ValueError(
            f"`groups` must hold one label for each of the {len(sets)} tasks. "
            f"Received shape: {groups.shape}. Give one label per row of `weights`."
        )

    counts = sets.astype(int)
    shared = counts @ counts.T
    sizes = counts.sum(axis=1)
    union = sizes[:, None] + sizes[None, :] - shared
    index = np.where(union > 0, shared / np.maximum(union, 1), 1.0)

    first, second = np.triu_indices(len(sets), k=1)
    related = groups[first] == groups[second]
    index = index[first, second]
    means = (
        float(values.mean()) if values.size else math.nan
        for values in (index[related], index[~related])
    )
    return JaccardIndex(*means)
