"""Like tasks, computed together."""

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import metric_function


def group_tasks(tasks):
    """Gather tasks that can be computed together.

    Args:
        tasks: A sequence of `Task`.

    Returns:
        A list of `TaskGroup`.
    """
    members = {}
    for index, task in enumerate(tasks):
        members.setdefault(task.group_key, []).append(index)
    return [
        TaskGroup([tasks[index] for index in indices], indices)
        for indices in members.values()
    ]


class TaskGroup(keras.Metric):
    """Loss and metrics of like tasks, computed together on an axis for the tasks.

    Args:
        tasks: Tasks that have all but the name and the weight in common.
        indices: Their places among all the tasks of the model.
    """

    def __init__(self, tasks, indices):
        super().__init__(name=f"group_of_{tasks[0].name}")
        self.tasks = tuple(tasks)
        self.indices = np.array(indices)
        self.task_weights = np.array([task.weight for task in tasks], "float32")
        loss = tasks[0].loss_function
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

    def __call__(self, y, predictions, sample_weight=None):
        """Update the metrics, and give the losses.

        Returns:
            The weighted sum of the losses of these tasks; and the examples' losses
            and weights, `(batch, tasks)` each.
        """
        labels, present = self._labels(y)
        weights = ops.cast(present, "float32")
        if sample_weight is not None:
            weights = weights * ops.cast(self._stack(sample_weight)[..., 0], "float32")
        # One row for the loss and each metric: (batch, tasks), summed over the batch.
        rows = [
            ops.reshape(function(labels, predictions), ops.shape(weights))
            for function in self._functions
        ]
        sums = ops.stack([ops.sum(weights * row, axis=0) for row in rows])
        counts = ops.sum(ops.cast(weights != 0, "float32"), axis=0)
        self.totals.assign_add(ops.stop_gradient(sums))
        self.counts.assign_add(counts)
        for copies in self._objects:
            for t, metric in enumerate(copies):
                metric.update_state(
                    labels[:, t], predictions[:, t], sample_weight=weights[:, t]
                )
        return self._weighted(sums[0], counts), rows[0], weights

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
        self(y, predictions, sample_weight)

    def mean_loss(self):
        """The weighted sum of the losses so far."""
        return self._weighted(self.totals[0], self.counts)

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

    def _weighted(self, totals, counts):
        means = ops.divide(totals, ops.maximum(counts, 1.0))
        return ops.sum(ops.multiply(means, self.task_weights))

    def _labels(self, y):
        """Labels `(batch, tasks, width)` and which are there, `(batch, tasks)`."""
        labels = self._stack(y)
        dtype = keras.backend.standardize_dtype(labels.dtype)
        present = ops.ones_like(labels, dtype="bool")
        if "float" in dtype:
            present = ops.logical_not(ops.isnan(labels))
        if self.tasks[0].kind == "multiclass":
            present = ops.logical_and(present, labels >= 0)
        labels = ops.where(present, labels, ops.zeros_like(labels))
        sparse = self.tasks[0].kind == "multiclass" and labels.shape[-1] == 1
        labels = ops.cast(labels, "int32" if sparse else "float32")
        return labels, ops.all(present, axis=-1)

    def _stack(self, values):
        """Values of these tasks, from a dict or one array, `(batch, tasks, width)`."""
        if not isinstance(values, dict):
            values = ops.convert_to_tensor(values)
            if len(values.shape) == 1:
                values = ops.expand_dims(values, 1)
            if len(self.indices) < values.shape[1]:
                values = ops.take(values, self.indices, axis=1)
            return ops.expand_dims(values, -1)
        columns = []
        for task in self.tasks:
            value = ops.convert_to_tensor(values[task.name])
            if len(value.shape) == 1:
                value = ops.expand_dims(value, 1)
            columns.append(value)
        return ops.stack(columns, axis=1)
