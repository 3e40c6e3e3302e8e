"""Scores of predictions that need no model: shares, F1 and correlations."""

import numpy as np

from dselectk_keras.tables.scores import ranks


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
