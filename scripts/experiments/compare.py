"""Differences between the arms of an experiment, and whether they may be chance."""

import math
from typing import NamedTuple

import numpy as np

__all__ = [
    "SURE",
    "Gap",
    "all_hold",
    "format_gap",
    "gap_of",
    "mean_and_error",
    "most",
    "standard_error",
]

SURE = 2.0  # The standard errors between two means that differ for sure.


class Gap(NamedTuple):
    """A difference: its mean over the seeds, and the standard error of that.

    In an f-string, the number of decimals may follow: `f"{gap:2}"`.

    Args:
        mean: The mean.
        error: Its standard error; NaN for one seed.
        count: The number of seeds.

    Example:
        >>> gap = gap_of([0.1, 0.2, 0.3])
        >>> f"{gap:2}", gap.is_positive(), gap.is_positive(over=0.2)
        ('+0.20 ± 0.06', True, None)
    """

    mean: float
    error: float
    count: float = math.inf

    def is_positive(self, over=0.0):
        """Whether it is larger than a number; `None` if that may be chance."""
        return _is_positive(self.mean - over, self.error)

    def is_negative(self, under=0.0):
        """Whether it is smaller than a number; `None` if that may be chance."""
        return _is_positive(under - self.mean, self.error)

    def is_as_good(self):
        """Whether it is positive, or may be chance."""
        return self.mean > -SURE * np.nan_to_num(self.error)

    def is_zero(self):
        """Whether it may be chance."""
        return None if math.isnan(self.error) else abs(self.mean) <= SURE * self.error

    def __format__(self, decimals):
        return format_gap(self.mean, self.error, int(decimals or 4))


def gap_of(values):
    """The `Gap` of some differences, one for each seed."""
    return Gap(*mean_and_error(values), len(values))


def most(flags):
    """Whether more than half of some booleans are true."""
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


def _is_positive(gap, error):
    """Whether a difference is positive; `None` if it is within two standard errors.

    Args:
        gap: The difference.
        error: Its standard error; NaN is unknown.

    """
    return bool(gap > 0) if abs(gap) > SURE * error else None


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
    """Whether several judgements all hold; `None` if none fails, but one is `None`.

    Args:
        judgements: Booleans, or `None` for what cannot be judged.

    Example:
        >>> all_hold([True, True]), all_hold([True, None]), all_hold([None, False])
        (True, None, False)
    """
    judgements = list(judgements)
    if False in judgements:
        return False
    return None if None in judgements or not judgements else True
