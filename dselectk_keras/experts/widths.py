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


def count_from_shapes(
    weight_shapes: Callable[[list[int]], list[tuple[int, ...]]], num_widths: int
) -> Callable[[list[int]], int]:
    """The number of parameters of a model as a function of its widths.

    The shapes of the weights are computed twice, for two lists of primes as widths.
    An axis of a weight that differs is a multiple of one of the widths, or the default
    rank of a factorized kernel, half of it.

    Args:
        weight_shapes: A function of a list of widths that returns the shapes of all
            weights, in the same order for any widths.
        num_widths: The number of widths.

    Returns:
        A function of a list of widths that returns an integer.
    """
    primes = [n for n in range(101, 101 + 20 * num_widths) if _is_prime(n)]
    first, second = primes[:num_widths], primes[num_widths : 2 * num_widths]

    def find_width(size, other):
        """The index of the width, its factor and its divisor; `None` for constants."""
        for i, (p, q) in enumerate(zip(first, second, strict=True)):
            if (size % p, other % q) == (0, 0) and size // p == other // q:
                return i, size // p, 1
            if (size, other) == ((p + 1) // 2, (q + 1) // 2):
                return i, 1, 2
        if size != other:
            raise ValueError(
                "Sizes of weights must be proportional to the widths of the experts. "
                f"Received: sizes {size} and {other} for the widths {first} and "
                f"{second}. Choose the widths yourself instead of `num_params`."
            )
        return None

    weights = [
        [(size, find_width(size, other)) for size, other in zip(*shapes, strict=True)]
        for shapes in zip(weight_shapes(first), weight_shapes(second), strict=True)
    ]

    def count(widths):
        def size_of(constant, found):
            if found is None:
                return constant
            i, factor, divisor = found
            return -(-factor * widths[i] // divisor)

        return sum(math.prod(size_of(*axis) for axis in axes) for axes in weights)

    return count


def _is_prime(n):
    return all(n % d for d in range(2, math.isqrt(n) + 1))
