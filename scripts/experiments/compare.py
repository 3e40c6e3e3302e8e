"""Differences between the arms of an experiment, and whether they may be chance."""

import math
from typing import NamedTuple

import numpy as np

__all__ = [
    "NOT_RUN",
    "Gap",
    "all_hold",
    "format_gap",
    "gap_of",
    "mean_and_error",
    "most",
    "standard_error",
]

NOT_RUN = "not run"


class Gap(NamedTuple):
    """A difference: its mean over the seeds, and the standard error of that.

    In an f-string, the number of decimals may follow: `f"{gap:2}"`.

    Args:
        mean: The mean.
        error: Its standard error; NaN for one seed.
        size: The number of seeds, or, for the difference of two gaps, that which has
            as many degrees of freedom.

    Example:
        >>> gap = gap_of([0.1, 0.2, 0.3])
        >>> f"{gap:2}", gap.is_positive(), gap.is_positive(over=0.2)
        ('+0.20 ± 0.06', None, None)
    """

    mean: float
    error: float
    size: float = math.inf

    @property
    def reach(self):
        """How far chance reaches: half of the 95 % interval, by Student's t."""
        return quantile(self.size - 1) * self.error

    def is_positive(self, over=0.0):
        """Whether it is larger than a number; `None` if that may be chance."""
        apart = self.mean - over
        return bool(apart > 0) if abs(apart) > self.reach else None

    def is_negative(self, under=0.0):
        """Whether it is smaller than a number; `None` if that may be chance."""
        larger = self.is_positive(under)
        return None if larger is None else not larger

    def is_zero(self, margin):
        """Whether it is within a margin; `None` if it may be in or out of it."""
        inside = Gap(abs(self.mean), self.error, self.size)
        return inside.is_negative(margin)

    def minus(self, other):
        """The difference to another one, which is of other runs."""
        error = math.hypot(self.error, other.error)
        # The degrees of freedom of Welch and Satterthwaite.
        parts = sum(gap.error**4 / max(gap.size - 1, 1) for gap in (self, other))
        degrees = error**4 / parts if parts else math.inf
        return Gap(self.mean - other.mean, error, degrees + 1)

    def __format__(self, decimals):
        return format_gap(self.mean, self.error, int(decimals or 4))


def gap_of(values):
    """The `Gap` of some differences.

    Args:
        values: A list of them, one for each seed.
    """
    return Gap(*mean_and_error(values), len(values))


def most(flags):
    """Whether more than half of some booleans are true.

    Args:
        flags: A list of them.
    """
    return sum(flags) > len(flags) / 2


def mean_and_error(values):
    """A mean and its standard error; NaN where there are too few numbers.

    Args:
        values: A list of numbers, or an array.

    Example:
        >>> mean_and_error([1.0, 3.0])
        (2.0, 1.0)
    """
    mean = float(np.mean(values)) if len(values) else math.nan
    return mean, float(standard_error(values))


def standard_error(values):
    """The standard error of the mean over the first axis; NaN if it has one entry.

    Args:
        values: An array, or a list.

    Example:
        >>> standard_error([[1.0, 0.0], [3.0, 0.0]]).tolist()
        [1.0, 0.0]
    """
    values = np.asarray(values)
    if len(values) < 2:
        return np.full(values.shape[1:], math.nan)
    return values.std(axis=0, ddof=1) / math.sqrt(len(values))


def quantile(degrees):
    """The 97.5 % quantile of Student's t; NaN without a degree of freedom."""
    if not degrees > 0:
        return math.nan
    degrees = min(degrees, 1e4)  # The normal distribution, to four digits.
    # The density of the angle whose tangent is t / sqrt(degrees).
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (degrees - 1)
    mass = np.cumsum(density[1:] + density[:-1])
    angle = np.interp(0.95 * mass[-1], mass, angles[1:])
    return float(math.sqrt(degrees) * np.tan(angle))


def format_gap(gap, error, decimals=4):
    """A difference and its standard error, as text.

    Args:
        gap: The difference.
        error: Its standard error; NaN is unknown.
        decimals: The number of decimals of both.

    Example:
        >>> format_gap(0.004, 0.00123)
        '+0.0040 ± 0.0012'
    """
    text = f"{gap:+.{decimals}f}"
    return text if math.isnan(error) else f"{text} ± {error:.{decimals}f}"


def all_hold(judgements):
    """Whether several judgements all hold.

    If one fails, they do not; else, if one is `"not run"` or `None`, they are too.

    Args:
        judgements: Booleans, `None` for what cannot be judged, or `"not run"`.

    Example:
        >>> all_hold([True, True]), all_hold([True, None]), all_hold([None, False])
        (True, None, False)
    """
    judgements = list(judgements)
    for found in (False, NOT_RUN, None):
        if found in judgements:
            return found
    return True if judgements else None
