"""Layer widths for a given number of parameters."""

import functools
import math
from collections.abc import Callable, Sequence


def closest_widths(
    widths: Sequence[int], target: int, count: Callable[[list[int]], int]
) -> list[int]:
    """Widths scaled by one factor so that a count comes closest to a target.

    Args:
        widths: The widths to scale.
        target: The wanted count.
        count: A function of a list of widths that grows with each of them.

    Returns:
        A list of widths, each 1 or more.
    """

    @functools.cache
    def counted(scaled):
        return count(list(scaled))

    def at(scale):
        return tuple(max(1, round(width * scale)) for width in widths)

    # Counts grow about as the square of the widths, so interpolate their roots.
    low, high = 0.0, 1.0
    while counted(at(high)) < target:
        low, high = high, 1.2 * high * math.sqrt(target / counted(at(high)))
    while high - low > 1e-3 / max(widths) and counted(at(low)) < target:
        ends = [math.sqrt(counted(at(scale))) for scale in (low, high)]
        share = (math.sqrt(target) - ends[0]) / max(ends[1] - ends[0], 1e-9)
        middle = low + min(max(share, 0.1), 0.9) * (high - low)
        if counted(at(middle)) < target:
            low = middle
        else:
            high = middle
    best = min((at(low), at(high)), key=lambda each: abs(counted(each) - target))
    return list(best)


def num_dense_params(
    units: Sequence[int], input_dim: int, use_bias: bool = True
) -> int:
    """The number of parameters of a stack of dense layers.

    Args:
        units: Widths of the layers.
        input_dim: Width of the inputs.
        use_bias: Whether the layers have a bias.

    Returns:
        An integer.
    """
    pairs = zip([input_dim, *units], units, strict=False)
    return sum((fan_in + use_bias) * width for fan_in, width in pairs)
