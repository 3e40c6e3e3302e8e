"""Edges between which the numbers of a column are encoded."""

from typing import Any, NamedTuple

import numpy as np

from dselectk_keras.utils import optional_import

# The leaves of a tree: at most, at least, and by the number of rows.
MOST_LEAVES, FEWEST_LEAVES, ROWS_PER_LEAF = 32, 3, 20
# The fewest rows of a leaf: a part of all rows, between two limits.
FEWEST_ROWS, MOST_FEWEST, ROWS_OF_LEAF = 5, 16, 250
MOST_ROWS, FOLDS, QUANTILES = 100_000, 3, 16
# A gain must be this multiple of its standard error.
SURE = 3.0


class Edges(NamedTuple):
    """The edges of a column.

    Args:
        edges: A sorted list, which is empty or has three numbers or more.
        one_hot: Whether numbers are one-hot between edges too.
        gain: The part of the variance of a target that the edges explain, beyond the
            number itself, on rows left out: that of the target with the largest one.
    """

    edges: list[float]
    one_hot: bool = False
    gain: float = 0.0


def find_edges(column: np.ndarray, labels: np.ndarray | None = None) -> Edges:
    """Find the edges of a column from the rows to train on.

    Without labels, they are quantiles of the rows, and of the different numbers. With
    labels, they are the thresholds of a small tree for all labels at once, and the
    least and the largest number. Three linear models are compared by cross-validation:
    of the number, of its piecewise-linear encoding, and of its one-hot encoding. If the
    second is not better than the first for any target, there are no edges. If the third
    is better than the second, as for numbers that many rows share, both are used.

    Args:
        column: The numbers `(rows,)`. Missing ones are NaN.
        labels: Standardized labels `(rows, targets)`. Missing ones are NaN.
    """
    known = np.isfinite(column)
    x = column[known].astype("float64")
    values = np.unique(x)
    if len(values) < 3:
        return Edges([])
    if labels is None:
        parts = np.linspace(0, 1, QUANTILES + 1)
        found = [np.quantile(each, parts, method="nearest") for each in (x, values)]
        edges = _different(np.concatenate(found))
        return Edges(edges.tolist() if len(edges) > 2 else [])
    order = np.random.default_rng(0).permutation(len(x))[:MOST_ROWS]
    return _from_trees(x[order], labels[known][order])


def _different(edges):
    """Edges that differ in float32."""
    return np.unique(np.float32(edges)).astype("float64")


def _from_trees(x, labels):
    """Compare the encodings on each third of the rows, and find edges of all."""
    errors = np.zeros((3, *labels.shape))
    present, n = ~np.isnan(labels), len(x)
    # A label that is missing counts as the mean of its target.
    filled = np.where(present, labels, 0.0)
    if n < FOLDS * FEWEST_ROWS:
        return Edges([])
    for fold in range(FOLDS):
        rows = np.arange(n) % FOLDS == fold
        edges = _thresholds(x[~rows], filled[~rows])
        for which, features in enumerate(_encodings(x, edges)):
            found = _linear(features[~rows], filled[~rows], features[rows])
            errors[which, rows] = present[rows] * (filled[rows] - found) ** 2
    gain, error = _gains(errors[0] - errors[1], present)
    edges = _thresholds(x, filled)
    if not (gain > SURE * error).any() or len(edges) < 3:
        return Edges([])
    step, step_error = _gains(errors[1] - errors[2], present)
    one_hot = bool((step > SURE * step_error).any())
    return Edges(edges.tolist(), one_hot, float(gain.max()))


def _gains(better, present):
    """The mean gain of each target over its labels, and the standard error."""
    count = np.maximum(present.sum(axis=0), 1)
    mean = better.sum(axis=0) / count
    spread = (present * (better - mean) ** 2).sum(axis=0) / count
    return mean, np.sqrt(spread / count)


def _thresholds(x, labels):
    """The thresholds of a tree, between the least and the largest number."""
    trees = optional_import("sklearn.tree", extra="tables", purpose="a tree")
    n = len(x)
    found = trees.DecisionTreeRegressor(
        max_leaf_nodes=max(FEWEST_LEAVES, min(MOST_LEAVES, n // ROWS_PER_LEAF)),
        min_samples_leaf=max(FEWEST_ROWS, min(MOST_FEWEST, n // ROWS_OF_LEAF)),
        random_state=0,
    )
    tree = found.fit(x[:, None], labels).tree_
    inner = tree.threshold[tree.feature >= 0]
    return _different(np.r_[x.min(), inner, x.max()])


def _encodings(x, edges):
    """The number; with its piecewise-linear encoding; and with the one-hot one too."""
    scaled = ((x - x.mean()) / (x.std() or 1.0))[:, None]
    linear = np.clip((x[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
    bins = np.searchsorted(edges[1:-1], x, side="right")
    one_hot = bins[:, None] == np.arange(len(edges) - 1)
    both = np.concatenate([scaled, linear], axis=1)
    return scaled, both, np.concatenate([both, one_hot], axis=1)


def _linear(x, labels, new):
    """Predict labels of new rows by a linear model with a small penalty."""
    x, new = (np.c_[each, np.ones(len(each))] for each in (x, new))
    products = x.T @ x + np.eye(x.shape[1])
    return new @ np.linalg.solve(products, x.T @ labels)


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
            parts.extend(np.where(np.isnan(labels)[:, None], np.nan, hot).T)
        else:
            parts.append(labels)
    found = np.stack(parts, axis=1)
    deviations = np.nanstd(found, axis=0)
    deviations[deviations == 0] = 1.0
    return (found - np.nanmean(found, axis=0)) / deviations
