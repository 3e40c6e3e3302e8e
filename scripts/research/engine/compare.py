"""Differences between the arms of an experiment, and whether they may be chance."""

import contextlib
import contextvars
import math
from typing import NamedTuple

import numpy as np

from dselectk_keras.utils import optional_import

NOT_RUN = "not run"
LOOKS = contextvars.ContextVar("looks", default=1)


@contextlib.contextmanager
def judged_often(looks):
    """A context in which 5 % is the chance of an error in all looks at growing runs."""
    token = LOOKS.set(looks)
    try:
        yield
    finally:
        LOOKS.reset(token)


def chance(among=1):
    """The chance of an error in one of some comparisons, by Bonferroni."""
    return 0.05 / (among * LOOKS.get())


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

    def is_positive(self, over=0.0, among=1):
        """Check whether it is larger than a number; `None` if that may be chance.

        Chance is what is within the 95 % interval by Student's t, or, `among` several
        comparisons, what is within an interval that is wider by Bonferroni.
        """
        apart = self.mean - over
        reach = quantile(self.size - 1, 1 - chance(among)) * self.error
        return bool(apart > 0) if abs(apart) > reach else None

    def above(self, number):
        """The difference to a number."""
        return self._replace(mean=self.mean - number)

    def __neg__(self):
        return self._replace(mean=-self.mean)

    def p_value(self, over=0.0):
        """The chance of being as far from a number by luck, by Student's t."""
        if not (self.error > 0 and self.size > 1):
            return 0.0 if self.error == 0 and self.mean != over else 1.0
        far = abs(self.mean - over) / self.error
        return float(2 * stats().t.sf(far, self.size - 1))

    def is_negative(self, under=0.0):
        """Check whether it is smaller than a number; `None` if that may be chance."""
        larger = self.is_positive(under)
        return None if larger is None else not larger

    def is_zero(self, margin):
        """Check whether it is within a margin; `None` if it may be in or out of it."""
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
        size = int(decimals or 4)
        text = f"{self.mean:+.{size}f}"
        return text if math.isnan(self.error) else f"{text} ± {self.error:.{size}f}"


def stats():
    """The module `scipy.stats`, which comes with scikit-learn."""
    return optional_import("scipy.stats", extra="tables", purpose="An interval")


def gap_of(values):
    """The `Gap` of some differences.

    Args:
        values: A list of them, one for each seed.
    """
    return Gap(*mean_and_error(values), len(values))


def mean_and_error(values):
    """A mean and its standard error; NaN where there are too few numbers."""
    mean = float(np.mean(values)) if len(values) else math.nan
    return mean, float(standard_error(values))


def standard_error(values):
    """The standard error of the mean over the first axis; NaN if it has one entry."""
    values = np.asarray(values)
    if len(values) < 2:
        return np.full(values.shape[1:], math.nan)
    return values.std(axis=0, ddof=1) / math.sqrt(len(values))


def quantile(degrees, level=0.95):
    """The reach of a share of Student's t; NaN without a degree of freedom."""
    if not degrees > 0:
        return math.nan
    return float(stats().t.ppf((1 + level) / 2, degrees))


def interval(values, among=1, overlap=0.0):
    """The mean of some numbers, and its interval of 95 % by Student's t.

    Of several intervals for one verdict, each is wider, by Bonferroni's correction.

    Args:
        values: What is drawn anew in a repetition: a list of numbers, one for each.
        among: The number of intervals for one verdict.
        overlap: The correlation of two of the numbers, whose mean then says less: where
            each is of rows of one table, the part of these rows that two share.

    Returns:
        The mean and the ends of the interval, which for one number are the mean.

    Example:
        >>> [round(float(each), 2) for each in interval([0.1, 0.2, 0.3])]
        [0.2, -0.05, 0.45]
    """
    gap = gap_of(values)
    if gap.size < 2:
        return gap.mean, gap.mean, gap.mean
    reach = quantile(gap.size - 1, 1 - chance(among)) * gap.error
    # Nadeau and Bengio, "Inference for the Generalization Error" (2003).
    share = overlap / (1 - overlap) if overlap < 1 else math.inf
    reach *= math.sqrt(1 + gap.size * share)
    return gap.mean, gap.mean - reach, gap.mean + reach
