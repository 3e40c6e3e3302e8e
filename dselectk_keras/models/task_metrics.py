"""The losses and metrics of all tasks since the start of an epoch."""

import inspect
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import settings
from dselectk_keras.models.label_reader import LabelReader, ReadLabels
from dselectk_keras.models.task_losses import as_factors
from dselectk_keras.ops import clipped
from dselectk_keras.utils import Tensor, get_from


class TaskGroup(keras.Metric):
    """The sums of similar tasks: of their labels, weights, losses and metrics.

    `functions` has those metrics that are means of a function, by name. Other metrics,
    such as AUC, have one copy per task.

    Args:
        reader: The reader of their labels.
    """

    def __init__(self, reader: LabelReader):
        super().__init__(name="task_group", dtype="float32")
        self.reader, self.tasks = reader, reader.tasks
        weights = [task.weight for task in self.tasks]
        self.weights_of_tasks = np.array(weights, "float32")
        self.functions, copies = {}, {}
        for identifier in self.tasks[0].metrics:
            name, metric = _named_metric(identifier)
            if name in {"loss", *self.functions, *copies}:
                raise ValueError(
                    f"The metrics of the task {self.tasks[0].name!r} need different "
                    f"names, and no name 'loss'. Received: several of the name "
                    f"{name!r}. Give the objects names, such as "
                    "`keras.metrics.AUC(name=...)`."
                )
            if isinstance(metric, keras.Metric):
                cls, config = type(metric), settings(metric)
                copies[name] = [cls.from_config(config) for _ in self.tasks]
            else:
                self.functions[name] = metric
        self.copies = copies
        self._checked = set()
        # Rows: number of labels, sum of their weights, loss, and functions. Sums over
        # many examples need float32, whatever `floatx` is.
        shape = 3 + len(self.functions), len(self.tasks)
        self.sums = self.add_variable(shape, "zeros", "float32")

    def update_state(self, read: ReadLabels, losses: Tensor) -> None:
        """Add a batch, and the sums of its losses."""
        read = read._replace(predictions=ops.stop_gradient(read.predictions))
        totals = [
            self.reader.weighted_sum(function, read)
            for function in self.functions.values()
        ]
        added = [read.counts, read.amounts, ops.stop_gradient(losses), *totals]
        self.sums.assign_add(ops.stack(added))
        each = read.labels, read.predictions, read.weights
        for name, metrics in self.copies.items():
            for t, metric in enumerate(metrics):
                metric.update_state(*(values[:, t] for values in each))
            if name not in self._checked:
                self._check(name, metrics[0].result())

    def _check(self, name, result):
        """Check once, in the first step, that a metric is one number."""
        self._checked.add(name)
        if isinstance(result, dict) or tuple(np.shape(result)) not in {(), (1,)}:
            raise ValueError(
                f"A metric must be one number. Received: {result} of {name!r} of the "
                f"task {self.tasks[0].name!r}. Average them, as in "
                "`keras.metrics.F1Score(average='macro')`."
            )

    def result(self) -> dict[str, float]:
        """Compute the mean losses and metrics of each task, by `{task}_{metric}`."""
        # All in one array: each read waits for the device.
        found = [metric.result() for metric in itertools.chain(*self.copies.values())]
        found = [
            ops.cast(ops.reshape(each, (-1,)), "float32")
            for each in (self.sums, *found)
        ]
        found = ops.convert_to_numpy(ops.concatenate(found))
        shape = self.sums.shape
        counts, amounts, *totals = found[: math.prod(shape)].reshape(shape)
        copied = found[math.prod(shape) :].reshape(-1, len(self.tasks))
        # As in Keras, a mean loss is over the number of labels, but a metric over the
        # sum of their weights.
        divisors = np.stack([counts, *[amounts] * (len(totals) - 1)])
        means = np.stack(totals) / np.where(divisors > 0, divisors, np.nan)
        results = {}
        for t, task in enumerate(self.tasks):
            names = "loss", *self.functions
            for name, value in zip(names, means[:, t], strict=True):
                results[f"{task.name}_{name}"] = float(value)
            for name, values in zip(self.copies, copied, strict=True):
                results[f"{task.name}_{name}"] = float(values[t])
        return results

    def reset_state(self) -> None:
        """Reset the sums and the copies of metrics."""
        for metric in keras.tree.flatten(self.copies):
            metric.reset_state()
        self.sums.assign(ops.zeros(self.sums.shape))


class TaskMetrics(keras.Metric):
    """The losses and metrics of all tasks since the start of an epoch.

    A step adds to one variable per group of tasks, and reports only the sum over the
    tasks. Once per epoch, the results of the groups have the numbers of each task.

    Args:
        readers: The readers of the labels of all tasks.
    """

    def __init__(self, readers: Sequence[LabelReader]):
        super().__init__(name="task_metrics", dtype="float32")
        self.groups = [TaskGroup(reader) for reader in readers]
        reported = ["loss", "task_loss"]
        for group in self.groups:
            names = "loss", *group.functions, *group.copies
            reported += [f"{t.name}_{name}" for t in group.tasks for name in names]
        reported += [f"val_{name}" for name in reported]
        if len({*reported}) < len(reported):
            twice = next(name for name in reported if reported.count(name) > 1)
            raise ValueError(
                "Each number of a report needs a name of its own: `{task}_{metric}`, "
                "with `val_` before it for the validation data. Received: tasks with "
                f"two numbers of the name {twice!r}. Rename a task or a metric."
            )

    def update_state(
        self, reads: Sequence[ReadLabels], losses: Sequence[Tensor]
    ) -> None:
        """Add a batch of all groups, and the sums of its losses."""
        for group, *each in zip(self.groups, reads, losses, strict=True):
            group.update_state(*each)

    def result(self) -> dict[str, Tensor]:
        """Compute the sum of the mean losses, with the fixed weights of the tasks."""
        total: Any = 0.0
        for group in self.groups:
            means = group.sums[2] / clipped(group.sums[0], 1.0)
            total += ops.sum(ops.multiply(means, as_factors(group.weights_of_tasks)))
        return {"task_loss": total}

    def reset_state(self) -> None:
        """Reset all groups, as at the start of an epoch."""
        for group in self.groups:
            group.reset_state()


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
