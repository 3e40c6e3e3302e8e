"""Groups of tasks that are computed together."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras.models.task import Task
from dselectk_keras.utils import Tensor, get_from

# Keras computes these from class indices too, and they would be wrong.
NEED_ONE_HOT = ("categorical_accuracy", "top_k_categorical_accuracy")


def group_tasks(tasks: Iterable[Task]) -> "list[TaskGroup]":
    """Group the tasks of a model that can be computed together."""
    members = {}
    for index, task in enumerate(tasks):
        members.setdefault(task.group_key, []).append((index, task))
    groups = []
    for number, group in enumerate(members.values()):
        tasks = [task for _, task in group]
        label = _label([task.name for task in tasks])
        if label in {"", *(each.label for each in groups)}:
            label = str(number)
        groups.append(TaskGroup(tasks, [index for index, _ in group], label))
    return groups


def _label(names):
    """Make a part of a layer's name, which TensorFlow wants in plain letters."""
    text = "_".join(names if len(names) <= 3 else (names[0], "to", names[-1]))
    return re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_")


class GroupLabels(NamedTuple):
    """The labels of a group of tasks in a batch.

    Args:
        values: Float32 `(batch, tasks, width)`, as given.
        weights: Sample weights `(batch, tasks)`: 0 where the label is missing.
        present: Whether the weight is not 0, booleans `(batch, tasks)`.
        possible: Whether a finite label is possible, booleans `(batch, tasks)`; `None`
            if each is.
    """

    values: Any
    weights: Any
    present: Any
    possible: Any


class TaskGroup:
    """Tasks that differ only in the name and the weight, computed on one axis.

    `functions` has the loss and those metrics that are means of a function, by name.
    `metrics` has the other metrics, such as AUC.

    Args:
        tasks: The tasks.
        indices: Their indices among all tasks of the model.
        label: The tasks in the names of the model's layers.
    """

    def __init__(self, tasks: Sequence[Task], indices: Sequence[int], label: str):
        self.tasks = tuple(tasks)
        self.indices = np.array(indices)
        self.label = label
        loss = tasks[0].loss_function
        name = getattr(loss, "__name__", type(loss).__name__)
        self.wants_probabilities = "crossentropy" in name.lower()
        self.ignored_class = getattr(loss, "ignore_class", None)
        self.functions = {"loss": loss.call if isinstance(loss, keras.Loss) else loss}
        self.metrics = {}
        for identifier in tasks[0].metric_names:
            name, metric = _named_metric(identifier)
            if name in {**self.functions, **self.metrics}:
                raise ValueError(
                    f"The metrics of the task {tasks[0].name!r} need different names, "
                    f"and no name 'loss'. Received: several of the name {name!r}. Give "
                    "the objects names, such as `keras.metrics.AUC(name=...)`."
                )
            is_object = isinstance(metric, keras.Metric)
            (self.metrics if is_object else self.functions)[name] = metric

    def read(self, y: Any, sample_weight: Any = None, xp: Any = ops) -> GroupLabels:
        """Read the labels of these tasks, and find missing and impossible ones.

        Args:
            y: The labels of all tasks of the model, a dict by name or one array.
            sample_weight: Sample weights, a dict by name or one array.
            xp: `keras.ops`, or `numpy` for NumPy arrays.
        """
        values = self._stack(y, xp)
        missing, possible = self._missing(values, xp), self._possible(values, xp)
        if sample_weight is None:
            weights = xp.where(missing, 0.0, xp.ones_like(values[..., 0]))
            return GroupLabels(values, weights, xp.logical_not(missing), possible)
        weights = self._stack(sample_weight, xp)[..., 0]
        weights = xp.where(missing, 0.0, weights)
        return GroupLabels(values, weights, weights != 0, possible)

    def predictions(self, y_pred: Any) -> Tensor:
        """Get the predictions of these tasks, `(batch, tasks, outputs)`.

        They are in a dict by name, or in one tensor of all tasks of the model,
        `(batch, tasks)` or `(batch, tasks, outputs)`.
        """
        if isinstance(y_pred, dict):
            return ops.stack([y_pred[task.name] for task in self.tasks], axis=1)
        own = self._columns(y_pred, ops)
        return own if len(own.shape) == 3 else ops.expand_dims(own, -1)

    def rows(self, given: GroupLabels, predictions: Tensor) -> tuple[list, Any]:
        """Compute the loss and each function of a batch, `(batch, tasks)`.

        Returns:
            A list of them, in the order of `functions`; and the labels, predictions and
            weights of further metrics.
        """
        labels, weights, present, possible = given
        usable = present
        if possible is not None:
            # Compiled code cannot raise an error: an impossible label makes all NaN.
            usable = ops.logical_and(present, possible)
            weights = ops.where(present == usable, weights, float("nan"))
        labels = ops.where(ops.expand_dims(usable, -1), labels, 0.0)
        if self.are_classes(labels):
            labels = ops.cast(labels, "int32")
            if unfit := sorted({*self.functions, *self.metrics} & {*NEED_ONE_HOT}):
                raise ValueError(
                    f"The metric {unfit[0]!r} needs one number per class as labels. "
                    f"Received: class indices for the task {self.tasks[0].name!r}. "
                    f"Use 'sparse_{unfit[0]}', or one-hot labels."
                )
        # A weight of 0 is not enough: 0 * NaN is NaN.
        predictions = ops.where(
            ops.expand_dims(present, -1), predictions, ops.ones_like(predictions)
        )
        values = [predictions] + [ops.stop_gradient(predictions)] * len(self.functions)
        rows = [
            ops.reshape(function(labels, value), ops.shape(weights))
            for function, value in zip(self.functions.values(), values, strict=False)
        ]
        return rows, (labels, values[-1], weights)

    def are_classes(self, labels: Any) -> bool:
        """Whether labels are class indices, not one number per class."""
        return self.tasks[0].kind == "multiclass" and labels.shape[-1] == 1

    def _missing(self, labels, xp):
        """Whether a label is missing, `(batch, tasks)`."""
        missing = xp.isnan(labels)
        if self.tasks[0].kind == "multiclass":
            missing = xp.logical_or(missing, labels < 0)
        if self.ignored_class is not None and self.are_classes(labels):
            missing = xp.logical_or(missing, labels == self.ignored_class)
        # Most labels have a width of 1, and need no reduction.
        return missing[..., 0] if labels.shape[-1] == 1 else xp.any(missing, axis=-1)

    def _possible(self, labels, xp):
        """Whether a finite label is possible, `(batch, tasks)`; `None` if each is."""
        if self.are_classes(labels):
            known = labels < self.tasks[0].num_outputs
            return xp.logical_and(known, xp.floor(labels) == labels)[..., 0]
        if self.wants_probabilities:
            return xp.all(xp.logical_and(labels >= 0, labels <= 1), axis=-1)
        return None

    def _stack(self, values, xp):
        """Stack the values of these tasks: `(batch, tasks, width)`."""
        as_array = np.asarray if xp is np else ops.convert_to_tensor

        def with_column(values):
            values = as_array(values, "float32")
            return xp.expand_dims(values, 1) if len(values.shape) == 1 else values

        if isinstance(values, dict):
            columns = [with_column(values[task.name]) for task in self.tasks]
            return xp.stack(columns, axis=1)
        return xp.expand_dims(self._columns(with_column(values), xp), -1)

    def _columns(self, values, xp):
        """Take these tasks from values `(batch, tasks, ...)` of all tasks."""
        if len(self.indices) == values.shape[1]:
            return values
        return xp.take(values, self.indices, axis=1)


def _named_metric(identifier):
    """Find a metric and its name: an object, or the function that it is the mean of."""
    metric = get_from(keras.metrics, "metrics", identifier)
    if not isinstance(identifier, str):
        is_object = isinstance(metric, keras.Metric)
        return metric.name if is_object else metric.__name__, metric
    if isinstance(metric, keras.metrics.MeanMetricWrapper):
        # Such as `keras.metrics.mean_squared_error` of "mse" and "MeanSquaredError".
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(metric).__name__).lower()
        for name in (words, identifier):
            function = getattr(keras.metrics, name, None)
            if callable(function) and not isinstance(function, type):
                return identifier, function
    return identifier, metric
