"""A sample of the data of a training, with the labels of its tasks in columns."""

import itertools
from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras.batches import Batches


class Sample(NamedTuple):
    """A sample of the training data."""

    x: Any
    # The labels of all tasks, and their weights, `(samples, columns)`.
    labels: np.ndarray
    weights: np.ndarray
    # The task of each column.
    tasks: np.ndarray


def draw_sample(model: Any, data: tuple, size: int, seed: int) -> Sample:
    """Draw a sample of inputs, labels and perhaps sample weights, the data of `fit`."""
    x, y, weights, *_ = (*data, None, None, None)
    if isinstance(x, Batches):  # Whose order does not change by this.
        x, y, weights, *_ = (*x.data, None)
    if x is None or (y is None and hasattr(x, "__next__")):
        raise ValueError(
            "Experts are chosen on a sample of the data. Received: "
            f"{'no data' if x is None else 'a generator, which can be read once'}. "
            "Pass arrays, `ChooseExperts(x, y)`."
        )
    if y is None:
        x, y, weights = _first_batches(x, size)
    total = len(keras.tree.flatten(x)[0])
    rows = np.sort(np.random.default_rng(seed).permutation(total)[:size])

    def some(values):
        if values is None:
            return None
        return keras.tree.map_structure(lambda each: np.asarray(each)[rows], values)

    return Sample(some(x), *_in_columns(_labels(model, some(y), some(weights))))


def _first_batches(batches, size):
    """Join the first batches of data, until there are enough examples."""
    found, count, places = [], 0, itertools.count()
    if isinstance(batches, keras.utils.PyDataset):
        if batches.num_batches is not None:
            places = range(batches.num_batches)
        batches = map(batches.__getitem__, places)
    for x, y, *weights in batches:
        found.append(keras.tree.map_structure(np.asarray, (x, y, *weights[:1])))
        count += len(keras.tree.flatten(x)[0])
        if count >= size:
            break
    joined = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *found)
    return (*joined, None)[:3]


def _labels(model, y, weights):
    """List the labels `(samples, columns)` and weights `(samples,)` of each task."""
    readers = getattr(model, "readers", ())
    if readers and model.loss is None:
        found = {}
        for reader in readers:
            labels = reader.stack(y, np)
            missing, _ = reader.missing_and_possible(labels, np)
            own = np.broadcast_to(reader.weights(missing, weights, np), missing.shape)
            if reader.are_classes(labels):
                classes = np.where(missing, 0, labels[..., 0]).astype(int)
                labels = np.eye(reader.tasks[0].num_outputs)[classes]
            for t, task in enumerate(reader.indices):
                found[task] = labels[:, t], own[:, t]
        return [found[task] for task in sorted(found)]
    if not isinstance(y, np.ndarray) or y.ndim > 2 or y.dtype.kind not in "fiub":
        raise ValueError(
            "`y` must be an array of numbers with one column for each gate, if the "
            f"model is no `MultitaskModel`. Received: {type(y).__name__} of shape "
            f"{getattr(y, 'shape', None)}. Pass `ChooseExperts(x, y)`."
        )
    columns = y.reshape(len(y), -1, 1).swapaxes(0, 1).astype("float64")
    return [(column, ~np.isnan(column[:, 0])) for column in columns]


def _in_columns(found):
    """Join the labels of all tasks, of variance one, and number their columns."""
    labels, weights = zip(*found, strict=True)
    sizes = [each.shape[1] for each in labels]
    tasks = np.repeat(np.arange(len(labels)), sizes)
    weights = np.stack(weights, axis=1).astype("float64")[:, tasks]
    labels = np.where(weights > 0, np.concatenate(labels, 1), 0.0)
    parts = weights / np.maximum(weights.sum(axis=0), 1e-12)
    labels = np.where(weights > 0, labels - (parts * labels).sum(axis=0), 0.0)
    variance = np.bincount(tasks, (parts * labels**2).sum(axis=0))[tasks]
    return labels / np.sqrt(np.maximum(variance, 1e-12)), weights, tasks
