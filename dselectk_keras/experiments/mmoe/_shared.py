"""What several experiments on MMoE do with data and with results."""

import dataclasses
import math

import numpy as np

from dselectk_keras.datasets import Split


def only_tasks(data, names):
    """A data set with fewer tasks, under names of one's own.

    Args:
        data: A `Dataset`.
        names: A dict from each new name to the name in the data set, which may be there
            more than once.

    Returns:
        A `Dataset`.

    Example:
        >>> from dselectk_keras.experiments.stand_in import stand_in
        >>> data = stand_in((3,), {"a": "binary", "b": "regression"})
        >>> only_tasks(data, {"first": "b"}).task_kinds
        ('regression',)
    """
    columns = [data.task_names.index(name) for name in names.values()]

    def cut(split):
        return Split(split.x, split.y[:, columns])

    return dataclasses.replace(
        data,
        train=cut(data.train),
        validation=cut(data.validation),
        test=cut(data.test),
        task_names=tuple(names),
        task_kinds=tuple(data.task_kinds[column] for column in columns),
        groups=data.groups and tuple(data.groups[column] for column in columns),
        num_classes=tuple(data.num_classes[column] for column in columns),
    )


def area_under_curve(labels, scores):
    """How likely a positive example has a higher score than a negative one.

    Args:
        labels: An array of zeros and ones.
        scores: An array of numbers. Of equal ones, half count.

    Returns:
        A number; NaN if there is one class only, or a score is not a number.
    """
    labels, scores = np.asarray(labels) > 0, np.asarray(scores)
    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative or np.isnan(scores).any():
        return math.nan
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    below = ranks[place][labels].sum() - positive * (positive + 1) / 2
    return float(below / (positive * negative))


def difference(results, number, arm, other):
    """How far apart the means of two arms are.

    Args:
        results: A `Results`.
        number: Name of the number.
        arm: The name of an arm.
        other: The name of what is subtracted.

    Returns:
        The difference, and its standard error.
    """
    gap = results.mean(arm, number) - results.mean(other, number)
    errors = results.error(arm, number), results.error(other, number)
    return gap, math.hypot(*errors)


def judged(gap, error):
    """Whether a difference is above zero.

    Args:
        gap: The difference.
        error: Its standard error; NaN is unknown.

    Returns:
        A boolean; `None` where the difference is not twice its standard error, and so
        may be chance.
    """
    return bool(gap > 0) if abs(gap) >= 2 * error else None


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
