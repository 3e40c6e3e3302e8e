"""The losses and metrics of all tasks since the start of an epoch."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import settings
from dselectk_keras.models.check_labels import check_shapes
from dselectk_keras.models.task import Task
from dselectk_keras.models.task_group import group_tasks
from dselectk_keras.utils import Tensor


class TaskMetrics(keras.Metric):
    """The losses and metrics of all tasks since the start of an epoch.

    A step adds to one variable per group of tasks, and reports only the sum over the
    tasks. `by_task` computes the numbers of each task, once per epoch. A metric that is
    not the mean of a function, such as AUC, has one copy per task.

    Args:
        tasks: The tasks, in the order of the model's outputs.
    """

    def __init__(self, tasks: Sequence[Task]):
        super().__init__(name="task_metrics", dtype="float32")
        self.tasks = tuple(tasks)
        self.groups = group_tasks(tasks)
        self.weights = np.array([task.weight for task in tasks], "float32")
        # The place of each task among the tasks of all groups.
        order = [index for group in self.groups for index in group.indices]
        self.places = np.argsort(order)
        # Rows: number of labels, sum of their weights, loss, and other functions.
        # Sums over many examples need float32, whatever `floatx` is.
        self.sums = [
            self.add_variable((2 + len(g.functions), len(g.tasks)), "zeros", "float32")
            for g in self.groups
        ]
        self.copies = [
            {
                name: [type(each).from_config(settings(each)) for _ in group.tasks]
                for name, each in group.metrics.items()
            }
            for group in self.groups
        ]

    def update_state(
        self, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Add a batch.

        Returns:
            The sum of the losses of each task in the batch, and its number of labels.
        """
        y, sample_weight = check_shapes(self.tasks, y, sample_weight)
        totals, counts = [], []
        for group, sums, copies in zip(
            self.groups, self.sums, self.copies, strict=True
        ):
            given = group.read(y, sample_weight)
            rows, seen = group.rows(given, group.predictions(y_pred))
            labels, predictions, weights = seen
            total, *others = (ops.sum(weights * row, axis=0) for row in rows)
            count = amount = ops.sum(weights, axis=0)
            if sample_weight is not None:
                count = ops.sum(ops.cast(given.present, "float32"), axis=0)
            sums.assign_add(
                ops.stack([count, amount, ops.stop_gradient(total), *others])
            )
            for metrics in copies.values():
                for t, metric in enumerate(metrics):
                    metric.update_state(labels[:, t], predictions[:, t], weights[:, t])
            totals.append(total)
            counts.append(count)
        return self._join(totals), self._join(counts)

    def result(self) -> dict[str, Tensor]:
        """Compute the sum of the mean losses, with the fixed weights of the tasks."""
        totals = self._join([sums[2] for sums in self.sums])
        counts = self._join([sums[0] for sums in self.sums])
        means = totals / ops.maximum(counts, 1.0)
        return {"task_loss": ops.sum(ops.multiply(means, self.weights))}

    def by_task(self) -> dict[str, float]:
        """Compute the mean losses and metrics of each task, by `{task}_{metric}`."""
        results = {}
        for group, sums, copies in zip(
            self.groups, self.sums, self.copies, strict=True
        ):
            counts, amounts, *totals = ops.convert_to_numpy(sums)
            # As in Keras, a mean loss is over the number of labels, but a metric over
            # the sum of their weights.
            divisors = np.stack([counts, *[amounts] * (len(totals) - 1)])
            means = np.stack(totals) / np.where(divisors > 0, divisors, np.nan)
            for t, task in enumerate(group.tasks):
                for name, value in zip(group.functions, means[:, t], strict=True):
                    results[f"{task.name}_{name}"] = float(value)
                for name, metrics in copies.items():
                    results[f"{task.name}_{name}"] = float(metrics[t].result())
        return results

    def reset_state(self) -> None:
        """Reset all metrics, as at the start of an epoch."""
        super().reset_state()
        for metric in keras.tree.flatten(self.copies):
            metric.reset_state()

    def _join(self, parts):
        """Join numbers of all groups, in the order of the tasks."""
        if len(parts) == 1:
            return parts[0]
        joined = ops.concatenate(parts, axis=0)
        in_order = (np.diff(self.places) > 0).all()
        return joined if in_order else ops.take(joined, self.places, axis=0)
