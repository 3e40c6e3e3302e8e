"""How wide layers must be for a number of parameters."""

import functools
import math


def closest_widths(widths, target, count):
    """Widths scaled by one factor so that a count comes as close as it can.

    Args:
        widths: The widths to be scaled.
        target: The number wanted.
        count: A function from a list of widths to a number that grows with them.

    Returns:
        A list of widths, each 1 or more.
    """

    @functools.cache
    def counted(scaled):
        return count(list(scaled))

    def at(scale):
        return tuple(max(1, round(width * scale)) for width in widths)

    # Counts grow about as the square of the widths: what is estimated are roots.
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


def num_dense_params(units, input_dim, use_bias=True):
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
