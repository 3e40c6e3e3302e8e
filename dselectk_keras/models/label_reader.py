"""Reads the labels of tasks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras.models.task import Task, group_tasks
from dselectk_keras.models.towers import Take
from dselectk_keras.ops import filled
from dselectk_keras.utils import Tensor


class ReadLabels(NamedTuple):
    """A batch of similar tasks: where a label is missing, all is finite.

    Args:
        labels: The labels, `(batch, tasks, width)`.
        predictions: The predictions, `(batch, tasks, outputs)`.
        weights: The weights of the labels, `(batch, tasks)`, 0 where one is missing.
        amounts: The sum of the weights of each task.
        counts: The number of labels of each task whose weight is not 0.
    """

    labels: Tensor
    predictions: Tensor
    weights: Tensor
    amounts: Tensor
    counts: Tensor


class LabelReader:
    """Reads the labels of tasks that differ only in the name and the weight."""

    def __init__(self, tasks: Sequence[Task], indices: Any):
        self.tasks = tuple(tasks)
        self.indices = np.array(indices)
        loss: Any = keras.losses.get(tasks[0].loss)
        self.rules = tasks[0].rules
        self.ignored_class = getattr(loss, "ignore_class", None)
        self._loss = loss.call if isinstance(loss, keras.Loss) else loss

    def part(self, places: Any) -> "LabelReader":
        """The reader of some of the tasks."""
        if len(places) == len(self.tasks):
            return self
        return LabelReader([self.tasks[i] for i in places], self.indices[places])

    def read(self, y: Any, predictions: Any, sample_weight: Any = None) -> ReadLabels:
        """Read a batch of all tasks; `predictions` are those of these tasks alone."""
        labels, weights, _, possible = self.labeled(y, sample_weight)
        present = usable = weights != 0
        if possible is not None:
            # Compiled code cannot raise an error: an impossible label makes all NaN.
            usable = ops.logical_and(present, possible)
            weights = filled(weights, present != usable, float("nan"))
        labels = ops.where(ops.expand_dims(usable, -1), labels, ops.zeros_like(labels))
        if self.are_classes(labels):
            labels = ops.cast(labels, "int32")
        # Functions of Keras would round the labels to the dtype of half precision.
        if "16" in str(predictions.dtype):
            predictions = ops.cast(predictions, "float32")
        # A weight of 0 is not enough: 0 * NaN is NaN.
        predictions = ops.where(
            ops.expand_dims(present, -1), predictions, ops.ones_like(predictions)
        )
        counts = amounts = ops.sum(weights, axis=0)
        if sample_weight is not None:
            counts = ops.sum(ops.cast(present, "float32"), axis=0)
        return ReadLabels(labels, predictions, weights, amounts, counts)

    def sum_losses(self, read: ReadLabels) -> Tensor:
        """Compute the sum of the losses of each task."""
        return self.weighted_sum(self._loss, read)

    def weighted_sum(self, function: Any, read: ReadLabels) -> Tensor:
        """Compute the sum of a loss or metric of each label, with their weights."""
        rows = function(read.labels, read.predictions)
        if len(rows.shape) < 2 or rows.shape[1] != len(self.tasks):
            name = getattr(function, "__name__", type(function).__name__)
            raise ValueError(
                "A loss or metric must give one number for each label, since labels "
                f"may be missing. Received for the task {self.tasks[0].name!r}: the "
                f"shape {tuple(rows.shape)} of {name!r}. Sum its last axis alone; a "
                "`keras.metrics.Metric` may compute other numbers of all labels."
            )
        # Some metrics return the default dtype, which may be half precision.
        rows = ops.cast(ops.reshape(rows, ops.shape(read.weights)), "float32")
        return ops.sum(read.weights * rows, axis=0)

    def stack(self, values: Any, xp: Any = ops) -> Any:
        """Stack labels or sample weights: `(batch, tasks, width)`, or 1 for all."""
        as_array = np.asarray if xp is np else ops.convert_to_tensor

        def with_column(values):
            values = as_array(values, "float32")
            # The rank is -1 if TensorFlow gets `(batch,)` and then `(batch, 1)`.
            return xp.reshape(values, (-1, 1)) if values.ndim in (-1, 1) else values

        if isinstance(values, dict):
            columns = [with_column(values[task.name]) for task in self.tasks]
            return xp.stack(columns, axis=1)
        return xp.expand_dims(self._columns(with_column(values), xp), -1)

    def labeled(self, y: Any, sample_weight: Any = None, xp: Any = ops) -> tuple:
        """Read labels, their weights, which are missing, and which are possible.

        The labels are stacked, and the others `(batch, tasks)`. A missing label has the
        weight 0. The last is `None` if all finite labels are possible.
        """
        labels = self.stack(y, xp)
        missing, possible = self._missing_and_possible(labels, xp)
        weights = xp.ones_like(missing, dtype="float32")
        if sample_weight is not None:
            weights = self.stack(sample_weight, xp)[..., 0]
        weights = xp.where(missing, xp.zeros_like(weights), weights)
        return labels, weights, missing, possible

    def _missing_and_possible(self, labels, xp):
        missing, possible = xp.isnan(labels), None
        if self.rules.negative_is_missing:
            missing = xp.logical_or(missing, labels < 0)
        if self.are_classes(labels) and self.ignored_class is not None:
            missing = xp.logical_or(missing, labels == self.ignored_class)
        if limits := self.limits(labels):
            possible = xp.logical_and(labels >= limits[0], labels <= limits[1])
            if self.are_classes(labels):
                possible = xp.logical_and(possible, xp.floor(labels) == labels)
        if labels.shape[-1] == 1:  # Most labels need no reduction.
            return missing[..., 0], None if possible is None else possible[..., 0]
        missing = xp.any(missing, axis=-1)
        return missing, None if possible is None else xp.all(possible, axis=-1)

    def limits(self, labels: Any) -> tuple[int, int] | None:
        """The least and the largest label that is possible, or `None` for all."""
        return self.rules.limits(labels.shape[-1])

    def none_impossible(self, labels: np.ndarray) -> bool:
        """Check whether all labels of an array are possible, as far as one pass tells.

        It may be false although all labels are possible, but not the reverse.
        """
        low, high = self.limits(labels) or (np.finfo("f").min, np.finfo("f").max)
        least, most = (f.reduce(labels, axis=None) for f in (np.fmin, np.fmax))
        if not self.are_classes(labels):
            return bool(low <= least and most <= high)
        # Classes that are negative are missing.
        whole = np.floor(labels) == labels
        return bool(most <= high and (whole.all() or (whole | np.isnan(labels)).all()))

    def are_classes(self, labels: Any) -> bool:
        """Check whether labels are class indices, not one number per class."""
        return self.rules.are_classes(labels.shape[-1])

    def predictions(self, outputs: Any) -> Any:
        """Stack the predictions of these tasks: `(batch, tasks, outputs)`."""
        if isinstance(outputs, dict):
            return ops.stack([outputs[task.name] for task in self.tasks], axis=1)
        columns = self._columns(outputs, ops)
        return columns if len(columns.shape) == 3 else ops.expand_dims(columns, -1)

    def _columns(self, values, xp):
        """Take these tasks from values `(batch, tasks, ...)` of all tasks."""
        if values.shape[1] in (1, len(self.indices)):
            return values
        if xp is np:
            return np.take(values, self.indices, axis=1)
        return Take(self.indices.tolist())(values)


def make_readers(tasks: Sequence[Task]) -> list[LabelReader]:
    """Make one reader for each group of similar tasks."""
    groups = group_tasks(tasks).values()
    return [LabelReader([tasks[i] for i in indices], indices) for indices in groups]


def in_order(readers: Sequence[LabelReader], parts: Sequence[Tensor]) -> Tensor:
    """Join numbers of all groups, in the order of the tasks."""
    if len(parts) == 1:
        return parts[0]
    joined = ops.concatenate(parts, axis=0)
    order = np.concatenate([reader.indices for reader in readers])
    if (np.diff(order) > 0).all():
        return joined
    return Take(np.argsort(order).tolist(), axis=0)(joined)
