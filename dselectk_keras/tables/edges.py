"""Edges between which the numbers of a column are encoded."""

from typing import Any

import numpy as np

from dselectk_keras.utils import optional_import

MOST_LEAVES, FEWEST_LEAVES, ROWS_PER_LEAF = 32, 3, 20
FEWEST_ROWS, ROWS_OF_LEAF = 5, 250
MOST_ROWS, FOLDS, QUANTILES = 100_000, 3, 16
TINY = 1e-12


def find_edges(
    column: np.ndarray, labels: np.ndarray | None = None
) -> tuple[list[float], float]:
    """Find the edges of a column from the rows to train on.

    With labels, they are the thresholds of a small tree for all labels at once, and the
    least and the largest number. There are none if, by cross-validation, such trees
    predict no label of rows that they have not seen. Without labels, they are quantiles
    of the rows, and of the different numbers.

    Args:
        column: The numbers `(rows,)`. Missing ones are NaN.
        labels: Standardized labels `(rows, targets)`. Missing ones are NaN.

    Returns:
        A sorted list, which is empty or has two edges or more, and the part of the
        variance that the trees explain, of the target with the largest one.
    """
    known = np.isfinite(column)
    x = column[known].astype("float64")
    values = np.unique(x)
    if len(values) < 3:
        return [], 0.0
    if labels is None:
        parts = np.linspace(0, 1, QUANTILES + 1)
        found = (np.quantile(each, parts, method="nearest") for each in (x, values))
        return _different(np.concatenate([*found])), 1.0
    inner, gain = _thresholds(x, labels[known])
    edges = _different(np.r_[values[0], inner, values[-1]]) if gain > 0 else []
    return edges if len(edges) > 2 else [], gain


def _different(edges):
    """Edges that differ in float32."""
    return np.unique(np.float32(edges)).astype("float64").tolist()


def _thresholds(x, labels):
    """The thresholds of a tree, and the gain from such trees on rows left out."""
    trees = optional_import("sklearn.tree", extra="tables", purpose="a tree")
    order = np.random.default_rng(0).permutation(len(x))[:MOST_ROWS]
    x, labels = x[order, None], labels[order]
    present, n = ~np.isnan(labels), len(x)
    # A label that is missing counts as the mean of its target.
    filled = np.where(present, labels, 0.0)
    leaves = max(FEWEST_LEAVES, min(MOST_LEAVES, n // ROWS_PER_LEAF))
    least = max(FEWEST_ROWS, n // ROWS_OF_LEAF)

    def fit(rows):
        tree = trees.DecisionTreeRegressor(
            max_leaf_nodes=leaves, min_samples_leaf=least, random_state=0
        )
        return tree.fit(x[rows], filled[rows])

    fold = np.arange(n) % FOLDS
    before, after = np.zeros((2, labels.shape[1]))
    for each in range(FOLDS):
        rows, others = fold == each, fold != each
        found = fit(others).predict(x[rows]).reshape(filled[rows].shape)
        error = present[rows] * (filled[rows] - found) ** 2
        after += error.sum(axis=0)
        mean = filled[others].mean(axis=0)
        before += (present[rows] * (filled[rows] - mean) ** 2).sum(axis=0)
    gain = float((1 - after / np.maximum(before, TINY)).max())
    if gain <= 0:
        return np.empty(0), gain
    tree = fit(slice(None)).tree_
    return tree.threshold[tree.feature >= 0], gain


def standardized_labels(targets: Any, frame: Any) -> np.ndarray:
    """Labels of all targets as numbers of mean 0 and deviation 1, classes one-hot.

    Args:
        targets: A list of `Target`.
        frame: A table with these columns.
    """
    parts = []
    for target in targets:
        labels = target.encode(frame[target.name]).astype("float64")
        if target.kind == "classes":
            hot = labels[:, None] == np.arange(len(target.classes))
            hot = np.where(np.isnan(labels)[:, None], np.nan, hot)
            parts.extend(hot.T)
        else:
            parts.append(labels)
    found = np.stack(parts, axis=1)
    deviations = np.nanstd(found, axis=0)
    deviations[deviations == 0] = 1.0
    return (found - np.nanmean(found, axis=0)) / deviations
