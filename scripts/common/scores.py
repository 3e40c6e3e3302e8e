"""Scores of predictions that need no model: areas, F1 and correlations."""

import math

import numpy as np


def area_under_curve(labels, scores):
    """The probability that a positive example has a higher score than a negative one.

    Equal scores count half. It is NaN if there is one class only, or a score is NaN.
    """
    labels, scores = np.asarray(labels) > 0, np.asarray(scores)
    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative or np.isnan(scores).any():
        return math.nan
    below = ranks(scores)[labels].sum() - positive * (positive + 1) / 2
    return float(below / (positive * negative))


def accuracy(labels, predicted):
    """The share of right predictions."""
    return float(np.mean(labels == predicted))


def f1(labels, predicted):
    """The harmonic mean of precision and recall of class 1; 0 without any of it."""
    right = np.sum((labels == 1) & (predicted == 1))
    total = np.sum(labels == 1) + np.sum(predicted == 1)
    return float(2 * right / total) if total else 0.0


def rmse(labels, predicted):
    """The root of the mean squared error."""
    return float(np.sqrt(np.mean((labels - predicted) ** 2)))


def pearson(labels, predicted):
    """Pearson's correlation; 0 if one of both is constant."""
    if np.ptp(labels) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(np.corrcoef(labels, predicted)[0, 1])


def spearman(labels, predicted):
    """Spearman's correlation: Pearson's of the ranks."""
    return pearson(ranks(labels), ranks(predicted))


def matthews(labels, predicted):
    """Matthews' correlation of two classes, 0 and 1; others count as 0."""
    return pearson(labels, (predicted == 1).astype(int))


def ranks(values):
    """The ranks of values, from 1; equal values share the mean of theirs."""
    from scipy.stats import rankdata  # It comes with scikit-learn.

    return rankdata(values)
