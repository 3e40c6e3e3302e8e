"""Like tasks, computed together."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import metric_function
from dselectk_keras.models.task import Task

CHUNK = 2**16  # Rows that are checked at once, so that checking needs little memory.


def group_tasks(tasks: Iterable[Task]) -> "list[TaskGroup]":
    """Gather tasks that can be computed together.

    Args:
        tasks: The tasks of a model.

    Returns:
        A list of `TaskGroup`.
    """
    members = {}
    for index, task in enumerate(tasks):
        members.setdefault(task.group_key, []).append((index, task))
    return [
        TaskGroup([task for _, task in group], [index for index, _ in group])
        for group in members.values()
    ]


class GroupLabels(NamedTuple):
    """The labels of like tasks in a batch.

    Args:
        labels: Float32 `(batch, tasks, width)`: 0 where they do not count.
        weights: Of each example, `(batch, tasks)`: 0 where there is no label.
        present: Whether a label has a weight, booleans `(batch, tasks)`.
        wrong: Whether it has one and is impossible, booleans `(batch, tasks)`.
    """

    labels: Any
    weights: Any
    present: Any
    wrong: Any


class GroupLosses(NamedTuple):
    """The losses of like tasks in a batch.

    Args:
        losses: Of each example, `(batch, tasks)`.
        weights: Of each example, `(batch, tasks)`: 0 where there is no label.
        total: The weighted sum over the batch, `(tasks,)`.
        count: The number of labels, `(tasks,)`.
    """

    losses: Any
    weights: Any
    total: Any
    count: Any


class TaskGroup(keras.Metric):
    """Loss and metrics of like tasks, computed together on an axis for the tasks.

    Args:
        tasks: Tasks that have all but the name and the weight in common.
        indices: Their places among all the tasks of the model.
    """

    def __init__(self, tasks: Sequence[Task], indices: Sequence[int]):
        super().__init__(name=f"group_of_{tasks[0].name}")
        self.tasks = tuple(tasks)
        self.indices = np.array(indices)
        loss = tasks[0].loss_function
        name = getattr(loss, "__name__", type(loss).__name__)
        self._wants_probabilities = "crossentropy" in name.lower()
        self._ignored_class = getattr(loss, "ignore_class", None)
        self._functions = [loss.call if isinstance(loss, keras.Loss) else loss]
        self._names = ["loss"]
        self._objects = []
        self._object_names = []
        for identifier in tasks[0].metric_names:
            metric = keras.metrics.get(identifier)
            if isinstance(identifier, str) and isinstance(
                metric, keras.metrics.MeanMetricWrapper
            ):
                self._functions.append(metric_function(metric))
                self._names.append(identifier)
            elif isinstance(metric, keras.Metric):
                config = metric.get_config()
                copies = [type(metric).from_config(config) for _ in tasks]
                name = identifier if isinstance(identifier, str) else metric.name
                self._objects.append(copies)
                self._object_names.append(name)
            else:
                self._functions.append(metric)
                self._names.append(getattr(metric, "__name__", str(identifier)))
        shape = (len(self._functions), len(tasks))
        self.totals = self.add_variable(shape, "zeros", name="totals")
        self.counts = self.add_variable(shape[1:], "zeros", name="counts")

    def __call__(self, read: GroupLabels, predictions) -> GroupLosses:
        """Update the metrics, and give the losses.

        Args:
            read: What `read` makes of labels and sample weights.
            predictions: The predictions of these tasks, `(batch, tasks, outputs)`.

        Returns:
            A `GroupLosses`.
        """
        labels, weights, present, wrong = read
        if self._are_classes(labels):
            labels = ops.cast(labels, "int32")
        # 0 * NaN is NaN: a prediction without a label must not reach the loss.
        predictions = ops.where(
            ops.expand_dims(present, -1), predictions, ops.ones_like(predictions)
        )
        # One row for the loss and each metric: (batch, tasks), summed over the batch.
        rows = [
            ops.reshape(function(labels, predictions), ops.shape(weights))
            for function in self._functions
        ]
        # Compiled code cannot raise, but it can show NaN.
        rows[0] = ops.where(wrong, float("nan"), rows[0])
        sums = ops.stack([ops.sum(weights * row, axis=0) for row in rows])
        counts = ops.sum(ops.cast(present, "float32"), axis=0)
        self.totals.assign_add(ops.stop_gradient(sums))
        self.counts.assign_add(counts)
        for copies in self._objects:
            for t, metric in enumerate(copies):
                metric.update_state(
                    labels[:, t], predictions[:, t], sample_weight=weights[:, t]
                )
        return GroupLosses(rows[0], weights, sums[0], counts)

    def read(self, y, sample_weight=None, xp=ops) -> GroupLabels:
        """Read the labels of these tasks, and which of them count.

        Args:
            y: The labels of all tasks of the model, a dict by name or one array.
            sample_weight: Sample weights, in the same form as `y`.
            xp: `keras.ops`, or `numpy` to compute on the host.

        Returns:
            A `GroupLabels`.
        """
        labels = self._stack(y, xp)
        missing = xp.isnan(labels)
        if self.tasks[0].kind == "multiclass":
            missing = xp.logical_or(missing, labels < 0)
        missing = xp.any(missing, axis=-1)
        if sample_weight is None:
            weights = xp.ones_like(labels[..., 0])
        else:
            weights = self._stack(sample_weight, xp)[..., 0]
        weights = xp.where(missing, 0.0, weights)
        present = weights != 0
        fitting = xp.logical_and(present, xp.all(self._possible(labels, xp), axis=-1))
        labels = xp.where(xp.expand_dims(fitting, -1), labels, 0.0)
        return GroupLabels(labels, weights, present, xp.not_equal(present, fitting))

    def check(self, y, sample_weight=None):
        """Refuse labels that count and are impossible.

        Args:
            y: The labels of all tasks of the model, a dict by name or one array, of
                NumPy arrays.
            sample_weight: Sample weights, in the same form as `y`.
        """
        given = (y,) if sample_weight is None else (y, sample_weight)
        for start in range(0, len(keras.tree.flatten(y)[0]), CHUNK):
            rows = slice(start, start + CHUNK)
            part = keras.tree.map_structure(lambda array, r=rows: array[r], given)
            *_, wrong = self.read(*part, xp=np)
            if not wrong.any():
                continue
            row, t = np.argwhere(wrong)[0].tolist()
            found = self._stack(part[0], np)[row, t]
            raise ValueError(
                f"The labels of the task {self.tasks[t].name!r} must be "
                f"{self._expected(found)}. Received: "
                f"{', '.join(f'{value:g}' for value in found)} in row {start + row}. "
                "For labels that you do not have, pass NaN or a sample weight of 0."
            )

    def predictions(self, y_pred):
        """The predictions of these tasks, `(batch, tasks, outputs)`.

        Args:
            y_pred: A dict that has them, under the name of the group, or one by
                one under the names of the tasks.
        """
        if self.name in y_pred:
            return y_pred[self.name]
        return ops.stack([y_pred[task.name] for task in self.tasks], axis=1)

    def update_state(self, y, predictions, sample_weight=None):
        """Update the metrics."""
        self(self.read(y, sample_weight), predictions)

    def result(self):
        """The mean loss and metrics so far, `(1 + metrics, tasks)`."""
        return self.totals / self.counts

    def by_task(self):
        """The losses and metrics so far, as numbers by task name and by name."""
        totals = ops.convert_to_numpy(self.totals)
        counts = ops.convert_to_numpy(self.counts)
        means = np.where(counts > 0, totals / np.maximum(counts, 1.0), np.nan)
        results = {}
        for t, task in enumerate(self.tasks):
            row = dict(zip(self._names, means[:, t].tolist(), strict=True))
            for name, copies in zip(self._object_names, self._objects, strict=True):
                row[name] = float(copies[t].result())
            results[task.name] = {
                f"{task.name}_{name}": value for name, value in row.items()
            }
        return results

    def reset_state(self):
        """Start again."""
        super().reset_state()
        for copies in self._objects:
            for metric in copies:
                metric.reset_state()

    def _are_classes(self, labels):
        """Whether labels are numbers of classes, not one number for each class."""
        return self.tasks[0].kind == "multiclass" and labels.shape[-1] == 1

    def _possible(self, labels, xp):
        """Which numbers can be labels, elementwise."""
        if self._are_classes(labels):
            known = labels < self.tasks[0].num_outputs
            if self._ignored_class is not None:
                known = xp.logical_or(known, labels == self._ignored_class)
            return xp.logical_and(known, xp.floor(labels) == labels)
        if self._wants_probabilities:
            return xp.logical_and(labels >= 0, labels <= 1)
        return xp.isfinite(labels)

    def _expected(self, labels):
        """What labels are possible, in words."""
        if self._are_classes(labels):
            return f"numbers of classes, 0 to {self.tasks[0].num_outputs - 1}"
        return "between 0 and 1" if self._wants_probabilities else "finite"

    def _stack(self, values, xp):
        """Values of these tasks, from a dict or one array, `(batch, tasks, width)`."""
        as_array = np.asarray if xp is np else ops.convert_to_tensor

        def with_column(values):
            values = as_array(values, "float32")
            return xp.expand_dims(values, 1) if len(values.shape) == 1 else values

        if isinstance(values, dict):
            columns = [with_column(values[task.name]) for task in self.tasks]
            return xp.stack(columns, axis=1)
        values = with_column(values)
        if len(self.indices) < values.shape[1]:
            values = xp.take(values, self.indices, axis=1)
        return xp.expand_dims(values, -1)
