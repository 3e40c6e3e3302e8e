"""How far apart the arms of an experiment are, and whether that may be chance."""

import math

import numpy as np

SURE = 2.0  # By how many standard errors two means must differ to be told apart.


def difference(results, number, arm, other):
    """How far apart two arms are, seed by seed.

    Args:
        results: A `Results`.
        number: Name of the number.
        arm: Name of an arm.
        other: Name of the arm that is taken off.

    Returns:
        The mean of the differences over the seeds that both have, and its standard
        error: NaN where there are too few.
    """
    mine, theirs = (
        {run.seed: run.numbers.get(number) for run in results.of(name)}
        for name in (arm, other)
    )
    pairs = [(value, theirs.get(seed)) for seed, value in mine.items()]
    values = [a - b for a, b in pairs if a is not None and b is not None]
    return mean_of(values)


def mean_of(values):
    """A mean and its standard error.

    Args:
        values: A list of numbers, or an array.

    Returns:
        Two numbers: NaN where there are too few.
    """
    if not len(values):
        return math.nan, math.nan
    if len(values) == 1:
        return float(values[0]), math.nan
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)


def judged(gap, error):
    """Whether a difference is above zero.

    Args:
        gap: The difference.
        error: Its standard error; NaN is unknown.

    Returns:
        A boolean; `None` where the difference is within `SURE` standard errors, and so
        may be chance.
    """
    return bool(gap > 0) if abs(gap) > SURE * error else None


def signed(gap, error, decimals=4):
    """A difference and its standard error, to be read.

    Args:
        gap: The difference.
        error: Its standard error; NaN is unknown.
        decimals: How many decimals both get.

    Returns:
        A string, such as `"+0.0040 ± 0.0012"`.
    """
    text = f"{gap:+.{decimals}f}"
    return text if math.isnan(error) else f"{text} ± {error:.{decimals}f}"


def is_lower(results, arm, other, number):
    """Whether a number is lower in one arm than in another.

    Args:
        results: A `Results`.
        arm: Name of an arm.
        other: Name of the arm it is compared with.
        number: Name of the number.

    Returns:
        1 if it is, by more than `SURE` standard errors; -1 if it is higher by as much;
        0 if neither can be told; `None` with fewer than two seeds.
    """
    mean, error = difference(results, number, arm, other)
    if math.isnan(error):
        return None
    return int(mean < -SURE * error) - int(mean > SURE * error)


def all_lower(signs):
    """Whether a claim of lower numbers holds.

    Args:
        signs: A list of what `is_lower` gives.

    Returns:
        `True` if all are lower for sure, `False` if one is higher for sure; `None` if
        neither can be told.
    """
    if -1 in signs:
        return False
    return True if signs and all(sign == 1 for sign in signs) else None


def count(signs):
    """How many comparisons came out how, to be read.

    Args:
        signs: A list of what `is_lower` gives.

    Returns:
        A string.
    """
    lower, higher = signs.count(1), signs.count(-1)
    return (
        f"Lower for sure in {lower} of {len(signs)} comparisons, higher for sure in "
        f"{higher}, within {SURE:.0f} standard errors in {len(signs) - lower - higher}."
    )
