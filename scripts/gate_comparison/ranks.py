"""Ranks of methods over problems."""

import math


def mean_ranks(losses):
    """The mean rank of each method over the problems; 1 is the lowest loss.

    Args:
        losses: Array (problems, methods). Tied methods share the mean of their ranks.

    Returns:
        An array, one number per method.
    """
    from scipy.stats import rankdata

    return rankdata(losses, axis=1).mean(axis=0)


def critical_difference(num_methods, num_problems, level=0.05):
    """The difference of two mean ranks that is significant in the Nemenyi test.

    Args:
        num_methods: The number of methods.
        num_problems: The number of problems.
        level: The level of significance.

    Returns:
        A number.
    """
    from scipy.stats import studentized_range

    quantile = studentized_range.ppf(1 - level, num_methods, 1e6) / math.sqrt(2)
    return quantile * math.sqrt(num_methods * (num_methods + 1) / (6 * num_problems))
