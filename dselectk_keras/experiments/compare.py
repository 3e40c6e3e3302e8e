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
    return mean_and_error(values)


def mean_and_error(values):
    """A mean and its standard error.

    Args:
        values: A list of numbers, or an array.

    Returns:
        Two numbers: NaN where there are too few.
    """
    mean = float(np.mean(values)) if len(values) else math.nan
    return mean, float(standard_error(values))


def standard_error(values):
    """The standard error of the mean over the first axis.

    Args:
        values: An array, or a list.

    Returns:
        An array without that axis: NaN where it is shorter than two.
    """
    values = np.asarray(values)
    if len(values) < 2:
        return np.full(values.shape[1:], math.nan)
    return values.std(axis=0, ddof=1) / math.sqrt(len(values))


def is_positive(gap, error):
    """Whether a difference is above zero.

    Args:
        gap: The difference.
        error: Its standard error; NaN is unknown.

    Returns:
        A boolean; `None` where the difference is within `SURE` standard errors, and so
        may be chance.
    """
    return bool(gap > 0) if abs(gap) > SURE * error else None


def format_gap(gap, error, decimals=4):
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


def all_hold(judgements):
    """Whether all of several judgements hold.

    Args:
        judgements: Booleans, or `None` for what cannot be judged.

    Returns:
        `False` if any does not hold, else `None` if any cannot be judged or there is
        none.
    """
    judgements = list(judgements)
    if False in judgements:
        return False
    return None if None in judgements or not judgements else True


def count_lower(judgements):
    """How many comparisons came out how, to be read.

    Args:
        judgements: A list of what `is_positive` says to each being lower.

    Returns:
        A string.
    """
    lower, higher = judgements.count(True), judgements.count(False)
    total = len(judgements)
    return (
        f"Lower for sure in {lower} of {total} comparisons, higher for sure in "
        f"{higher}, within {SURE:.0f} standard errors in {total - lower - higher}."
    )
