"""Groups of tasks that are computed together."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import metric_function, metric_mode, settings
from dselectk_keras.models.task import Task
from dselectk_keras.utils import Tensor, get_from

# Keras computes these from class indices too, and they would be wrong.
NEED_ONE_HOT = ("categorical_accuracy", "top_k_categorical_accuracy")
CHUNK = 2**16  # Number of rows to check at once, to save memory.


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


class CompleteLabels(NamedTuple):
    """Labels that are known to be present, possible and of weight 1.

    A step that gets them is traced without the masks of missing labels.

    Args:
        labels: The labels of all tasks of a model, a dict by name or one array.
    """

    labels: Any


class GroupLabels(NamedTuple):
    """The labels of a group of tasks in a batch.

    Where it is known before the batch that no label is missing or impossible, and that
    no weight differs from 1, all but the labels are `None`.

    Args:
        labels: Float32 `(batch, tasks, width)`: 0 where missing or impossible.
        weights: Sample weights `(batch, tasks)`: 0 where the label is missing.
        present: Whether the weight is not 0, booleans `(batch, tasks)`.
        wrong: Whether a present label is impossible, booleans `(batch, tasks)`.
    """

    labels: Any
    weights: Any = None
    present: Any = None
    wrong: Any = None


class GroupLosses(NamedTuple):
    """The losses of a group of tasks in a batch.

    Args:
        losses: The loss of each example, `(batch, tasks)`.
        weights: Sample weights `(batch, tasks)`: 0 where the label is missing.
        total: The weighted sum over the batch, `(tasks,)`.
        count: The number of present labels, `(tasks,)`.
    """

    losses: Any
    weights: Any
    total: Any
    count: Any


class TaskGroup(keras.Metric):
    """Loss and metrics of a group of tasks, computed on an axis for the tasks.

    Functions are computed for all tasks at once, and `totals` and `counts` have their
    sums. A metric that is not the mean of a function has one copy per task.

    Args:
        tasks: Tasks that differ only in the name and the weight.
        indices: Their indices among all tasks of the model.
        label: The tasks in the names of the model's layers.
    """

    def __init__(self, tasks: Sequence[Task], indices: Sequence[int], label: str):
        super().__init__(name=f"group_of_{tasks[0].name}")
        self.tasks = tuple(tasks)
        self.label = label
        self.indices = np.array(indices)
        loss = tasks[0].loss_function
        name = getattr(loss, "__name__", type(loss).__name__)
        self._wants_probabilities = "crossentropy" in name.lower()
        self._ignored_class = getattr(loss, "ignore_class", None)
        self._functions = [loss.call if isinstance(loss, keras.Loss) else loss]
        self._names = ["loss"]
        self._metrics_by_name = {}
        modes = {"loss": "min"}
        for identifier in tasks[0].metric_names:
            metric = get_from(keras.metrics, "metrics", identifier)
            named = isinstance(identifier, str)
            is_object = isinstance(metric, keras.Metric)
            own = metric.name if is_object else getattr(metric, "__name__", str(metric))
            name = identifier if named else own
            if name in modes:
                raise ValueError(
                    f"The metrics of the task {tasks[0].name!r} need different names, "
                    f"and no name 'loss'. Received: several of the name {name!r}. Give "
                    "the objects names, such as `keras.metrics.AUC(name=...)`."
                )
            modes[name] = metric_mode(metric)
            if named and isinstance(metric, keras.metrics.MeanMetricWrapper):
                metric, is_object = metric_function(metric), False
            if is_object:
                copies = [type(metric).from_config(settings(metric)) for _ in tasks]
                self._metrics_by_name[name] = copies
            else:
                self._functions.append(metric)
                self._names.append(name)
        self.modes = {
            f"{task.name}_{name}": mode
            for task in tasks
            for name, mode in modes.items()
        }
        shape = (len(self._functions), len(tasks))
        # Sums over many examples need float32, whatever `floatx` is.
        self.totals = self.add_variable(shape, "zeros", "float32", name="totals")
        # The number of labels, and the sum of their weights.
        shape = (2, len(tasks))
        self.counts = self.add_variable(shape, "zeros", "float32", name="counts")

    def __call__(self, read: GroupLabels, predictions: Tensor) -> GroupLosses:
        """Update the metrics, and return the losses.

        The labels are those of `read`, the predictions `(batch, tasks, outputs)`.
        """
        labels, weights, present, wrong = read
        if self._are_classes(labels):
            labels = ops.cast(labels, "int32")
            names = {*self._names, *self._metrics_by_name}
            if unfit := sorted(names & {*NEED_ONE_HOT}):
                raise ValueError(
                    f"The metric {unfit[0]!r} needs one number per class as labels. "
                    f"Received: class indices for the task {self.tasks[0].name!r}. "
                    f"Use 'sparse_{unfit[0]}', or one-hot labels."
                )
        shape = ops.shape(labels)[:2]
        if present is not None:
            # A weight of 0 is not enough: 0 * NaN is NaN.
            predictions = ops.where(
                ops.expand_dims(present, -1), predictions, ops.ones_like(predictions)
            )
        # Metrics need no gradient.
        seen = [predictions] + [ops.stop_gradient(predictions)] * len(self._functions)
        # The loss and each metric have one row: (batch, tasks).
        rows = [
            ops.reshape(function(labels, values), shape)
            for function, values in zip(self._functions, seen, strict=False)
        ]
        losses = rows[0]
        if present is None:
            counts = ops.broadcast_to(ops.cast(shape[0], "float32"), shape[1:])
        else:
            # Compiled code cannot raise an error, so impossible labels give NaN.
            rows[0] = losses = ops.where(wrong, float("nan"), losses)
            rows = [weights * row for row in rows]
            counts = ops.sum(ops.cast(present, "float32"), axis=0)
        total, *others = (ops.sum(row, axis=0) for row in rows)
        self.totals.assign_add(ops.stack([ops.stop_gradient(total), *others]))
        amounts = counts if weights is None else ops.sum(weights, axis=0)
        self.counts.assign_add(ops.stack([counts, amounts]))
        for copies in self._metrics_by_name.values():
            for t, metric in enumerate(copies):
                metric.update_state(
                    labels[:, t],
                    predictions[:, t],
                    sample_weight=None if weights is None else weights[:, t],
                )
        if weights is None:
            weights = ops.ones_like(losses)
        return GroupLosses(losses, weights, total, counts)

    def read(self, y: Any, sample_weight: Any = None, xp: Any = ops) -> GroupLabels:
        """Read the labels of these tasks, and find missing and impossible ones.

        Args:
            y: The labels of all tasks of the model, a dict by name or one array; or
                `CompleteLabels`.
            sample_weight: Sample weights, in the same form as `y`.
            xp: `keras.ops`, or `numpy` for NumPy arrays.
        """
        if isinstance(y, CompleteLabels):
            return GroupLabels(self._stack(y.labels, xp))
        labels = self._stack(y, xp)
        missing, possible = self._missing(labels, xp), self._possible(labels, xp)
        # Most labels have a width of 1, and need no reduction.
        one = labels.shape[-1] == 1
        missing = missing[..., 0] if one else xp.any(missing, axis=-1)
        possible = possible[..., 0] if one else xp.all(possible, axis=-1)
        if sample_weight is None:
            weights = xp.ones_like(labels[..., 0])
        else:
            weights = self._stack(sample_weight, xp)[..., 0]
        weights = xp.where(missing, 0.0, weights)
        present = weights != 0
        fitting = xp.logical_and(present, possible)
        labels = xp.where(xp.expand_dims(fitting, -1), labels, 0.0)
        return GroupLabels(labels, weights, present, xp.not_equal(present, fitting))

    def check(self, y: Any, sample_weight: Any = None) -> bool:
        """Raise an error if a label in NumPy arrays is present and impossible.

        Otherwise, return whether no label is missing.
        """
        complete = True
        given = (y,) if sample_weight is None else (y, sample_weight)
        for start in range(0, len(keras.tree.flatten(y)[0]), CHUNK):
            rows = slice(start, start + CHUNK)
            part = keras.tree.map_structure(lambda array, r=rows: array[r], given)
            labels = self._stack(part[0], np)
            missing = self._missing(labels, np)
            complete = complete and not missing.any()
            if (missing | self._possible(labels, np)).all() and len(part) == 1:
                continue
            # A weight of 0 makes a label missing too.
            read = self.read(*part, xp=np)
            self._check_finite(read.weights, start)
            wrong = read.wrong
            if not wrong.any():
                continue
            row, t = np.argwhere(wrong)[0].tolist()
            task, found = self.tasks[t], labels[row, t]
            expected = "between 0 and 1" if self._wants_probabilities else "finite"
            if self._are_classes(labels):
                expected = f"class indices from 0 to {task.num_outputs - 1}"
            raise ValueError(
                f"The labels of the task {task.name!r} must be {expected}. Received: "
                f"{', '.join(f'{value:g}' for value in found)} in row {start + row}. "
                "For missing labels, pass NaN or a sample weight of 0."
            )
        return complete

    def _check_finite(self, weights, start):
        """Raise an error if the sample weight of a label is NaN or infinite."""
        for row, t in np.argwhere(~np.isfinite(weights)).tolist():
            raise ValueError(
                f"The sample weights of the task {self.tasks[t].name!r} must be "
                f"finite. Received: {weights[row, t]:g} in row {start + row}. To leave "
                "an example out, pass 0."
            )

    def predictions(self, y_pred: Any) -> Tensor:
        """Get the predictions of these tasks, `(batch, tasks, outputs)`.

        They are in a dict by name of the group or of the tasks, or in one tensor of all
        tasks of the model, `(batch, tasks)` or `(batch, tasks, outputs)`.
        """
        if not isinstance(y_pred, dict):
            own = self._columns(y_pred, ops)
            return own if len(own.shape) == 3 else ops.expand_dims(own, -1)
        if self.name in y_pred:
            return y_pred[self.name]
        return ops.stack([y_pred[task.name] for task in self.tasks], axis=1)

    def results_by_name(self) -> dict[str, float]:
        """Compute the mean losses and metrics so far, by `{task}_{metric}`."""
        totals = ops.convert_to_numpy(self.totals)
        counts, amounts = ops.convert_to_numpy(self.counts)
        # As in Keras, a mean loss is over the number of labels, but a metric over the
        # sum of their weights.
        divisors = np.stack([counts] + [amounts] * (len(totals) - 1))
        means = totals / np.where(divisors > 0, divisors, np.nan)
        results = {}
        for t, task in enumerate(self.tasks):
            for name, value in zip(self._names, means[:, t].tolist(), strict=True):
                results[f"{task.name}_{name}"] = value
            for name, copies in self._metrics_by_name.items():
                results[f"{task.name}_{name}"] = float(copies[t].result())
        return results

    def reset_state(self) -> None:
        """Reset all metrics, as at the start of an epoch."""
        super().reset_state()
        for copies in self._metrics_by_name.values():
            for metric in copies:
                metric.reset_state()

    def _are_classes(self, labels):
        """Whether labels are class indices, not one number per class."""
        return self.tasks[0].kind == "multiclass" and labels.shape[-1] == 1

    def _missing(self, labels, xp):
        """Whether each number is of a missing label."""
        missing = xp.isnan(labels)
        if self.tasks[0].kind == "multiclass":
            missing = xp.logical_or(missing, labels < 0)
        if self._ignored_class is not None and self._are_classes(labels):
            missing = xp.logical_or(missing, labels == self._ignored_class)
        return missing

    def _possible(self, labels, xp):
        """Whether each number can be a label."""
        if self._are_classes(labels):
            known = labels < self.tasks[0].num_outputs
            return xp.logical_and(known, xp.floor(labels) == labels)
        if self._wants_probabilities:
            return xp.logical_and(labels >= 0, labels <= 1)
        return xp.isfinite(labels)

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
