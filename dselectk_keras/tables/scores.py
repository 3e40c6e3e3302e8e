"""Scores of predictions of a target."""

import math
from typing import Any

import numpy as np
from keras import ops

LEAST = 1e-7  # A probability of 0 would have an infinite loss.
SCALES = np.linspace(0.1, 1.2, 23)
SHARES = np.linspace(0.0, 1.0, 21)


def predictions_of(target: Any, outputs: Any) -> np.ndarray:
    """Numbers `(rows,)`, or probabilities `(rows, classes)`, of outputs of a model."""
    values = np.asarray(outputs, "float64")
    if target.kind == "binary":
        return np.concatenate([1 - values, values], axis=1)
    return values[:, 0] if target.kind == "number" else values


def fit_scale(
    target: Any, outputs: np.ndarray, labels: np.ndarray
) -> tuple[float, float]:
    r"""Find the scale of outputs with the lowest loss, and this loss.

    A network that has learnt its rows by heart is too sure. With a scale $s$ from 0.1
    to 1.2, standardized numbers become $s f$, and probabilities $p_i^s / \sum_j p_j^s$.

    Args:
        target: A `Target`.
        outputs: Outputs of a model `(rows, width)`.
        labels: Numbers of classes, or standardized numbers, `(rows,)`.

    Reference:
        Berta et al., "Rethinking Early Stopping: Refine, Then Calibrate" (2025).
    """
    found = predictions_of(target, outputs)
    if target.kind == "number":
        best = (found @ labels) / max(found @ found, LEAST)
        scale = float(np.clip(best, SCALES[0], SCALES[-1]))
        return scale, float(np.mean((scale * found - labels) ** 2))
    logs = np.log(np.clip(found, LEAST, 1.0))
    own = np.take_along_axis(logs, labels.astype(int)[:, None], axis=1)[:, 0]
    losses = [np.mean(np.log(np.exp(s * logs).sum(axis=1)) - s * own) for s in SCALES]
    return float(SCALES[np.argmin(losses)]), float(min(losses))


def fit_share(
    target: Any, outputs: np.ndarray, others: np.ndarray, labels: np.ndarray
) -> tuple[float, float]:
    """Find the share of the other outputs in the mean with the lowest loss.

    Args:
        target: A `Target`.
        outputs: Outputs of a model `(rows, width)`.
        others: Those of another one.
        labels: Numbers of classes, or standardized numbers, `(rows,)`.

    Returns:
        The share, from 0 to 1, and the loss with it.
    """
    pair = [predictions_of(target, each) for each in (outputs, others)]
    if target.kind != "number":
        pair = [
            np.take_along_axis(each, labels.astype(int)[:, None], axis=1)
            for each in pair
        ]
    means = [(1 - share) * pair[0] + share * pair[1] for share in SHARES]
    if target.kind == "number":
        losses = [np.mean((mean - labels) ** 2) for mean in means]
    else:
        losses = [-np.mean(np.log(np.clip(mean, LEAST, 1.0))) for mean in means]
    return float(SHARES[np.argmin(losses)]), float(min(losses))


def scaled(target: Any, outputs: Any, scale: float) -> Any:
    """Scale the probabilities of a target with classes, a tensor (see `fit_scale`)."""
    powers = ops.power(outputs, scale)
    if target.kind == "binary":
        return powers / (powers + ops.power(1.0 - outputs, scale))
    return powers / ops.sum(powers, axis=-1, keepdims=True)


def scores_of(target: Any, labels: np.ndarray, predicted: np.ndarray) -> dict:
    """Compute the scores of a target (see `TableModel.evaluate`).

    Args:
        target: A `Target`.
        labels: Numbers of classes, or numbers, `(rows,)`. Missing ones are NaN.
        predicted: Numbers `(rows,)`, or probabilities `(rows, classes)`.
    """
    known = ~np.isnan(labels)
    y, found = labels[known].astype("float64"), predicted[known]
    scores: dict[str, Any] = {"labels": len(y)}
    if not len(y):
        return scores | {"explained": math.nan}
    if target.kind == "number":
        square = float(np.mean((y - found) ** 2))
        scores |= {"rmse": math.sqrt(square)}
        variance = float(y.var())
        scores["r2"] = scores["explained"] = (
            1 - square / variance if variance else math.nan
        )
        return scores
    classes = y.astype(int)
    if target.kind == "binary":
        scores["auc"] = area_under_curve(classes, found[:, 1])
    own = np.take_along_axis(found, classes[:, None], axis=1)
    loss = float(-np.log(np.clip(own, LEAST, 1.0)).mean())
    shares = np.unique(classes, return_counts=True)[1] / len(classes)
    entropy = float(-(shares * np.log(shares)).sum())
    scores["log_loss"] = loss
    scores["accuracy"] = float((np.argmax(found, axis=1) == classes).mean())
    scores["explained"] = 1 - loss / entropy if entropy else math.nan
    return scores


def area_under_curve(labels: Any, scores: Any) -> float:
    """The probability that a positive example has a higher score than a negative one.

    Equal scores count half. It is NaN if there is one class only, or a score is NaN.
    """
    is_positive, scores = np.asarray(labels) > 0, np.asarray(scores)
    positive = int(is_positive.sum())
    negative = len(is_positive) - positive
    if not positive or not negative or np.isnan(scores).any():
        return math.nan
    below = ranks(scores)[is_positive].sum() - positive * (positive + 1) / 2
    return float(below / (positive * negative))


def ranks(values: np.ndarray) -> np.ndarray:
    """The ranks of values, from 1; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
