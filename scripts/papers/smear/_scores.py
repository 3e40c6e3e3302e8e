"""The scores of GLUE, of labels and predictions as integers."""

import numpy as np


def accuracy(labels, predicted):
    """The share of right predictions."""
    return float(np.mean(labels == predicted))


def f1(labels, predicted):
    """The harmonic mean of precision and recall of class 1; 0 without true ones."""
    right = np.sum((labels == 1) & (predicted == 1))
    total = np.sum(labels == 1) + np.sum(predicted == 1)
    return float(2 * right / total) if total else 0.0


def pearson(labels, predicted):
    """Pearson's correlation; 0 if one of both is constant."""
    if np.ptp(labels) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(np.corrcoef(labels, predicted)[0, 1])


def spearman(labels, predicted):
    """Spearman's correlation: Pearson's of the ranks, equal values sharing theirs."""
    return pearson(_ranks(labels), _ranks(predicted))


def matthews(labels, predicted):
    """Matthews' correlation of two classes, 0 and 1; others count as 0."""
    return pearson(labels, (predicted == 1).astype(int))


def _ranks(values):
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]
