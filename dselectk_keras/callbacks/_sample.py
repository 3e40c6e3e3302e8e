"""A sample of the data of a training, with the labels of its tasks in columns."""

import itertools
import math
from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.models.columns import as_dense, as_numpy

# Batches that cannot be read in a random order are read up to so many samples. Of those
# that can, as many are read at least.
BUFFER = 10


class Sample(NamedTuple):
    """A sample of the training data."""

    x: Any
    # The labels of all tasks, and their weights, `(samples, columns)`.
    labels: np.ndarray
    weights: np.ndarray
    # The task of each column, and whether the labels of the column differ.
    tasks: np.ndarray
    varies: np.ndarray


def draw_sample(
    model: Any,
    size: int,
    seed: int,
    *,
    x: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    validation_split: float | None = None,
) -> Sample:
    """Draw a sample of the training data, the arguments of `fit`."""
    if isinstance(x, Batches):  # Whose order does not change by this.
        x, y, sample_weight, *_ = (*x.data, None)
    if x is None or (y is None and hasattr(x, "__next__")):
        raise ValueError(
            "Experts are chosen on a sample of the data. Received: "
            f"{'no data' if x is None else 'a generator, which can be read once'}. "
            "Pass arrays, `ChooseExperts(x, y)`."
        )
    rng = np.random.default_rng(seed)
    if y is None:
        x, y, sample_weight = _draw_from_batches(x, size, rng)
    else:
        total = keras.tree.flatten(x)[0].shape[0]
        # As Keras holds out the last rows.
        total = math.floor(total * (1.0 - (validation_split or 0.0)))
        rows = np.sort(rng.permutation(total)[:size])
        x, y, sample_weight = (_take(each, rows) for each in (x, y, sample_weight))
    if class_weight is not None:
        sample_weight = _weights_of_classes(y, class_weight)
    return Sample(x, *_in_columns(_labels(model, y, sample_weight)))


def _take(values, rows: Any = slice(None)):
    """Take rows of arrays, tables, tensors or sparse matrices of SciPy."""
    if values is None:
        return None
    return keras.tree.map_structure(lambda array: as_numpy(array)[rows], values)


def _draw_from_batches(batches, size, rng):
    """Draw rows of batches in a random order, or else of the first ones."""
    least, most = 0, BUFFER * size
    if isinstance(batches, keras.utils.PyDataset):
        places: Any = itertools.count()
        if batches.num_batches is not None:
            places = rng.permutation(batches.num_batches).tolist()
            least, most = BUFFER, size
        batches = map(batches.__getitem__, places)
    kept, keys, count = [], np.zeros(0), 0

    def cut():
        """Keep the rows with the smallest of the random keys."""
        rows = np.sort(np.argsort(keys)[:size])
        joined = keras.tree.map_structure(lambda *own: np.concatenate(own)[rows], *kept)
        return [joined], keys[rows]

    for number, (x, y, *weights) in enumerate(batches, start=1):
        part = as_dense(
            _take((x, y, *[each for each in weights[:1] if each is not None]))
        )
        kept.append(part)
        rows = len(keras.tree.flatten(part)[0])
        keys, count = np.append(keys, rng.random(rows)), count + rows
        if len(keys) > 2 * size:
            kept, keys = cut()
        if count >= most and number >= least:
            break
    (joined,), _ = cut()
    return (*joined, None)[:3]


def _weights_of_classes(y, class_weight):
    """Compute the sample weights that Keras makes of class weights."""
    y = np.asarray(y)
    if y.ndim > 1:
        y = y[..., 0] if y.shape[-1] == 1 else y.argmax(axis=-1)
    classes = np.round(np.nan_to_num(y.astype("float64"))).astype(int).tolist()
    return np.array([class_weight.get(each, 1.0) for each in classes])


def _labels(model, y, weights):
    """List the labels `(samples, columns)` and weights `(samples,)` of each task."""
    readers = getattr(model, "readers", ())
    if readers and model.loss is None:
        found = {}
        for reader in readers:
            labels, own, missing, _ = reader.labeled(y, weights, np)
            if reader.are_classes(labels):
                classes = np.where(missing, 0, labels[..., 0]).astype(int)
                labels = np.eye(reader.rules.num_outputs)[classes]
            for t, task in enumerate(reader.indices):
                found[task] = labels[:, t], own[:, t]
        return [found[task] for task in sorted(found)]
    try:
        columns = np.asarray(y, "float64").reshape(len(y), -1)
    except (TypeError, ValueError):
        columns = None
    if columns is None or np.ndim(y) > 2:
        raise ValueError(
            "`y` must be an array of numbers with one column for each gate, if the "
            f"model is no `MultitaskModel`. Received: {type(y).__name__} of shape "
            f"{np.shape(y)}. Pass `ChooseExperts(x, y)`."
        )
    given = 1.0 if weights is None else np.reshape(weights, (len(columns), -1))
    given = np.where(np.isnan(columns), 0.0, given)
    return [(columns[:, [i]], given[:, i]) for i in range(columns.shape[1])]


def _in_columns(found):
    """Join the labels of all tasks, of variance one, and number their columns."""
    labels, weights = zip(*found, strict=True)
    sizes = [each.shape[1] for each in labels]
    tasks = np.repeat(np.arange(len(labels)), sizes)
    weights = np.stack(weights, axis=1).astype("float64")[:, tasks]
    labels = np.where(weights > 0, np.concatenate(labels, 1), 0.0)
    highest = np.where(weights > 0, labels, -np.inf).max(axis=0)
    varies = highest > np.where(weights > 0, labels, np.inf).min(axis=0)
    parts = weights / np.maximum(weights.sum(axis=0), 1e-12)
    labels = np.where(weights > 0, labels - (parts * labels).sum(axis=0), 0.0)
    variance = np.bincount(tasks, (parts * labels**2).sum(axis=0))[tasks]
    return labels / np.sqrt(np.maximum(variance, 1e-12)), weights, tasks, varies
