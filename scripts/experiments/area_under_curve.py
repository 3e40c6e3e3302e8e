"""The area under the ROC curve."""

import math

import numpy as np


def area_under_curve(labels, scores):
    """The probability that a positive example has a higher score than a negative one.

    It is NaN if there is one class only, or a score is NaN.

    Args:
        labels: An array of zeros and ones.
        scores: An array of numbers. Equal scores count half.
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
