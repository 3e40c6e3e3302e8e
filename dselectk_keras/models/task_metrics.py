"""The losses and metrics of all tasks since the start of an epoch."""

import inspect
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import settings
from dselectk_keras.models.check_labels import check_shapes
from dselectk_keras.models.task import Task, group_tasks
from dselectk_keras.utils import Tensor, get_from


class TaskGroup(keras.Metric):
    """Tasks that differ only in the name and the weight, computed on one axis.

    `functions` has the loss and those metrics that are means of a function, by name.
    Other metrics, such as AUC, have one copy per task.

    Args:
        tasks: The tasks.
        indices: Their indices among all tasks of the model.
    """

    def __init__(self, tasks: Sequence[Task], indices: Sequence[int]):
        super().__init__(name="task_group", dtype="float32")
        self.tasks = tuple(tasks)
        self.indices = np.array(indices)
        task = tasks[0]
        loss: Any = keras.losses.get(task.loss)
        name = getattr(loss, "__name__", type(loss).__name__)
        self.wants_probabilities = "crossentropy" in name.lower()
        self.ignored_class = getattr(loss, "ignore_class", None)
        self.functions = {"loss": loss.call if isinstance(loss, keras.Loss) else loss}
        copies = {}
        for identifier in task.metrics:
            name, metric = _named_metric(identifier)
            if name in {**self.functions, **copies}:
                raise ValueError(
                    f"The metrics of the task {task.name!r} need different names, "
                    f"and no name 'loss'. Received: several of the name {name!r}. Give "
                    "the objects names, such as `keras.metrics.AUC(name=...)`."
                )
            if isinstance(metric, keras.Metric):
                cls, config = type(metric), settings(metric)
                copies[name] = [cls.from_config(config) for _ in tasks]
            else:
                self.functions[name] = metric
        self.copies = copies
        # Rows: number of labels, sum of their weights, loss, and other functions.
        # Sums over many examples need float32, whatever `floatx` is.
        shape = 2 + len(self.functions), len(tasks)
        self.sums = self.add_variable(shape, "zeros", "float32")

    def update_state(
        self, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Add a batch; return the sum of each task's losses, and its number of labels.

        Args:
            y: The labels of all tasks of the model, a dict by name or one array.
            y_pred: The predictions, in one of these forms.
            sample_weight: Sample weights, a dict by name or one array.
        """
        labels, predictions, weights, present = self._read(y, y_pred, sample_weight)
        fixed, totals = ops.stop_gradient(predictions), []
        for name, function in self.functions.items():
            rows = function(labels, predictions if name == "loss" else fixed)
            rows = ops.reshape(rows, ops.shape(weights))
            totals.append(ops.sum(weights * rows, axis=0))
        loss, *others = totals
        count = amount = ops.sum(weights, axis=0)
        if sample_weight is not None:
            count = ops.sum(ops.cast(present, "float32"), axis=0)
        added = [count, amount, ops.stop_gradient(loss), *others]
        self.sums.assign_add(ops.stack(added))
        for metrics in self.copies.values():
            for t, metric in enumerate(metrics):
                metric.update_state(labels[:, t], fixed[:, t], weights[:, t])
        return loss, count

    def _read(self, y, y_pred, sample_weight):
        """Read a batch: where a label is missing, all is finite, and the weight 0."""
        labels = self.stack(y)
        missing, possible = self.missing_and_possible(labels)
        weights = self.weights(missing, sample_weight)
        present = usable = weights != 0
        if possible is not None:
            # Compiled code cannot raise an error: an impossible label makes all NaN.
            usable = ops.logical_and(present, possible)
            weights = ops.where(present == usable, weights, float("nan"))
        labels = ops.where(ops.expand_dims(usable, -1), labels, 0.0)
        if self.are_classes(labels):
            labels = ops.cast(labels, "int32")
        predictions = self._predictions(y_pred)
        # A weight of 0 is not enough: 0 * NaN is NaN.
        predictions = ops.where(
            ops.expand_dims(present, -1), predictions, ops.ones_like(predictions)
        )
        return labels, predictions, weights, present

    def result(self) -> dict[str, float]:
        """Compute the mean losses and metrics of each task, by `{task}_{metric}`."""
        counts, amounts, *totals = ops.convert_to_numpy(self.sums)
        # As in Keras, a mean loss is over the number of labels, but a metric over the
        # sum of their weights.
        divisors = np.stack([counts, *[amounts] * (len(totals) - 1)])
        means = np.stack(totals) / np.where(divisors > 0, divisors, np.nan)
        results = {}
        for t, task in enumerate(self.tasks):
            for name, value in zip(self.functions, means[:, t], strict=True):
                results[f"{task.name}_{name}"] = float(value)
            for name, metrics in self.copies.items():
                results[f"{task.name}_{name}"] = float(metrics[t].result())
        return results

    def reset_state(self) -> None:
        """Reset the sums and the copies of metrics."""
        for metric in keras.tree.flatten(self.copies):
            metric.reset_state()
        self.sums.assign(ops.zeros(self.sums.shape))

    def stack(self, values: Any, xp: Any = ops) -> Any:
        """Stack labels or sample weights of these tasks: `(batch, tasks, width)`.

        The axis of the tasks is 1 if one array of sample weights is for all.
        """
        as_array = np.asarray if xp is np else ops.convert_to_tensor

        def with_column(values):
            values = as_array(values, "float32")
            # The rank is -1 if TensorFlow gets `(batch,)` and then `(batch, 1)`.
            return xp.reshape(values, (-1, 1)) if values.ndim in (-1, 1) else values

        if isinstance(values, dict):
            columns = [with_column(values[task.name]) for task in self.tasks]
            return xp.stack(columns, axis=1)
        return xp.expand_dims(self._columns(with_column(values), xp), -1)

    def weights(self, missing: Any, sample_weight: Any, xp: Any = ops) -> Any:
        """Compute the weights of labels `(batch, tasks)`: 0 where they are missing."""
        if sample_weight is None:
            return xp.where(missing, 0.0, xp.ones_like(missing, dtype="float32"))
        return xp.where(missing, 0.0, self.stack(sample_weight, xp)[..., 0])

    def missing_and_possible(self, labels: Any, xp: Any = ops) -> tuple[Any, Any]:
        """Whether labels are missing, and whether finite ones are possible.

        Both are `(batch, tasks)`. The second is `None` if all labels are possible.
        """
        missing, possible = xp.isnan(labels), None
        if self.tasks[0].kind == "multiclass":
            missing = xp.logical_or(missing, labels < 0)
        if self.are_classes(labels):
            if self.ignored_class is not None:
                missing = xp.logical_or(missing, labels == self.ignored_class)
            known = labels < self.tasks[0].num_outputs
            possible = xp.logical_and(known, xp.floor(labels) == labels)
        elif self.wants_probabilities:
            possible = xp.logical_and(labels >= 0, labels <= 1)
        if labels.shape[-1] == 1:  # Most labels need no reduction.
            return missing[..., 0], None if possible is None else possible[..., 0]
        missing = xp.any(missing, axis=-1)
        return missing, None if possible is None else xp.all(possible, axis=-1)

    def are_classes(self, labels: Any) -> bool:
        """Whether labels are class indices, not one number per class."""
        return self.tasks[0].kind == "multiclass" and labels.shape[-1] == 1

    def _predictions(self, y_pred):
        """Get the predictions of these tasks, `(batch, tasks, outputs)`."""
        if isinstance(y_pred, dict):
            return ops.stack([y_pred[task.name] for task in self.tasks], axis=1)
        columns = self._columns(y_pred, ops)
        return columns if len(columns.shape) == 3 else ops.expand_dims(columns, -1)

    def _columns(self, values, xp):
        """Take these tasks from values `(batch, tasks, ...)` of all tasks."""
        if values.shape[1] in (1, len(self.indices)):
            return values
        return xp.take(values, self.indices, axis=1)


class TaskMetrics(keras.Metric):
    """The losses and metrics of all tasks since the start of an epoch.

    A step adds to one variable per group of tasks, and reports only the sum over the
    tasks. Once per epoch, the results of the groups have the numbers of each task.

    Args:
        tasks: The tasks, in the order of the model's outputs.
    """

    def __init__(self, tasks: Sequence[Task]):
        super().__init__(name="task_metrics", dtype="float32")
        self.tasks = tuple(tasks)
        self.groups = [
            TaskGroup([tasks[i] for i in indices], indices)
            for indices in group_tasks(tasks).values()
        ]
        self.weights = np.array([task.weight for task in tasks], "float32")

    def update_state(
        self, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Add a batch; return the sum of each task's losses, and its number of labels.

        The arguments are those of `TaskGroup.update_state`.
        """
        check_shapes(self.tasks, y, sample_weight)
        parts = [group.update_state(y, y_pred, sample_weight) for group in self.groups]
        totals, counts = zip(*parts, strict=True)
        return self._join(totals), self._join(counts)

    def result(self) -> dict[str, Tensor]:
        """Compute the sum of the mean losses, with the fixed weights of the tasks."""
        totals = self._join([group.sums[2] for group in self.groups])
        counts = self._join([group.sums[0] for group in self.groups])
        means = totals / ops.maximum(counts, 1.0)
        return {"task_loss": ops.sum(ops.multiply(means, self.weights))}

    def reset_state(self) -> None:
        """Reset all groups, as at the start of an epoch."""
        for group in self.groups:
            group.reset_state()

    def _join(self, parts):
        """Join numbers of all groups, in the order of the tasks."""
        if len(parts) == 1:
            return parts[0]
        joined = ops.concatenate(parts, axis=0)
        order = np.concatenate([group.indices for group in self.groups])
        if (np.diff(order) > 0).all():
            return joined
        return ops.take(joined, np.argsort(order), axis=0)


def _named_metric(identifier: Any) -> tuple[str, Any]:
    """Find a metric and its name: an object, or the function that it is the mean of."""
    metric: Any = get_from(keras.metrics, "metrics", identifier)
    if not isinstance(identifier, str):
        is_object = isinstance(metric, keras.Metric)
        return metric.name if is_object else metric.__name__, metric
    # Such as `keras.metrics.mean_squared_error` of "mse" and "MeanSquaredError".
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(metric).__name__).lower()
    functions = [getattr(keras.metrics, name, None) for name in (words, identifier)]
    return identifier, next(filter(inspect.isfunction, functions), metric)
