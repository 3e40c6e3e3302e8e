"""How far tasks share experts."""

import math
from typing import NamedTuple

import numpy as np

from dselectk_keras.metrics._chosen import chosen


class JaccardIndex(NamedTuple):
    """Mean Jaccard index of two kinds of pairs of tasks.

    Args:
        related: mean over the pairs of tasks of one group; NaN without any.
        unrelated: mean over the pairs of tasks of two groups; NaN without any.
    """

    related: float
    unrelated: float


def jaccard_index(weights, groups=None, tolerance=0.0):
    r"""Mean Jaccard index of the expert sets of pairs of tasks.

    With $A_t$ the set of experts that task $t$ uses (weight above the
    tolerance), the mean over pairs $t < u$ of

    $$J(A_t, A_u) = \frac{|A_t \cap A_u|}{|A_t \cup A_u|}$$

    taken apart for pairs within one group (related tasks) and pairs across
    groups. It is one where two tasks use the same experts and zero where they
    share none; two empty sets count as equal.

    Args:
        weights: array (tasks, n) of expert weights.
        groups: one group label a task, or `None`: all tasks are one group, so
            that `related` is the mean over all pairs. Defaults to `None`.
        tolerance: largest weight that still counts as none. Defaults to `0.0`.

    Returns:
        A `JaccardIndex(related, unrelated)`; NaN where there are no such pairs.

    Example:
        >>> weights = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        >>> jaccard_index(weights, groups=[0, 0, 1])
        JaccardIndex(related=0.5, unrelated=0.0)

    Reference:
        Hazimeh et al., DSelect-k, NeurIPS 2021
        (https://arxiv.org/abs/2106.03760).
    """
    sets = chosen(weights, tolerance)
    if sets.ndim != 2:
        raise ValueError(
            "`weights` must have shape (tasks, experts). Received shape: "
            f"{sets.shape}. Average or choose over the other axes first."
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
    return JaccardIndex(_mean(index[related]), _mean(index[~related]))


def _mean(values):
    return float(values.mean()) if values.size else math.nan
