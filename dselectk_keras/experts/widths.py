"""Layer widths for a given number of parameters."""

from collections.abc import Callable, Sequence

import numpy as np


def closest_widths(
    widths: Sequence[int], target: int, count: Callable[[list[int]], int]
) -> list[int]:
    """Widths scaled by one factor so that their `count` is a target, up to rounding.

    The count is a quadratic function of the factor, because each weight has two axes
    at most that are scaled. It is fitted to the factors 1, 2 and 3.
    """
    factors = (1, 2, 3)
    counts = [count([factor * width for width in widths]) for factor in factors]
    quadratic = np.polyfit(factors, counts, 2)
    roots = np.roots(quadratic - [0, 0, target]).real
    factor = min(roots[roots > 0], default=0)
    return [max(1, round(width * factor)) for width in widths]
