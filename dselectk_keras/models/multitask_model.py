"""A Keras model with tasks."""

import functools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import (
    added_loss,
    compiled_loss,
    compiled_metrics,
    mean_loss,
)
from dselectk_keras.models.routed_model import for_each_gate, gates_taught_by_loss
from dselectk_keras.models.task import Task
from dselectk_keras.models.task_group import group_tasks
from dselectk_keras.models.task_layers import NameTasks
from dselectk_keras.utils import sum_over_replicas

MANY_TASKS = 8  # More are not all shown in a progress bar.


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MultitaskModel(keras.Model):
    r"""A functional Keras model that knows its tasks, and their losses and metrics.

    $$
    L = \sum_t \omega_t \, \frac{\sum_b m_{tb} \, \ell(y_{tb}, \hat y_{tb})}
    {\sum_b m_{tb}} + \text{penalties}
    $$

    where $m_{tb}$ is 0 where the label of task $t$ is missing. Its outputs are a
    dict by task name. Like tasks share one tensor, one loss and one set of metrics
    on an axis for the tasks; still each is reported by its name.

    Labels are a dict by task name, or one array `(samples, tasks)`. A missing label
    is NaN (or negative, for classes), or has a sample weight of 0; sample weights
    come in the same form as labels. Nothing of a missing label or its prediction
    reaches the loss, and in an example without any label NaN and infinite features
    are taken as 0.

    Labels that are impossible, such as class 7 of 3, are a `ValueError` if they are
    given to `fit` or `evaluate` as NumPy or pandas arrays. Found in a step, such as
    those from a `tf.data.Dataset`, they make the loss NaN.

    Under `tf.distribute` the mean of a task is over the labels of all replicas, so
    that the loss equals that of one process with the whole batch.

    `fit` and `evaluate` report `loss`,
    `task_loss` (without penalties), and `{task}_loss` and `{task}_{metric}` for
    each task.

    `build_multitask_model` makes one. `compile` needs an optimizer only; a loss
    given to it, with metrics if wanted, replaces those of all the tasks.

    Args:
        *args: Inputs and outputs, as for `keras.Model`.
        tasks: The tasks, in the order of the outputs.
        **kwargs: The other arguments of `keras.Model`.
    """

    def __init__(self, *args, tasks: Iterable[Task | dict] = (), **kwargs):
        super().__init__(*args, **kwargs)
        self.tasks = tuple(
            task if isinstance(task, Task) else Task.from_config(task) for task in tasks
        )
        self.task_groups = group_tasks(self.tasks)
        order = np.concatenate([[], *(group.indices for group in self.task_groups)])
        self._group_order = order.astype("int32")
        self._call_stacked = self._stacked_graph()
        self._in_step = False

    def call(self, inputs, training=None, mask=None):
        """The outputs by task name; inside a step, one tensor for each group."""
        if self._in_step and self._call_stacked is not None:
            return self._call_stacked(inputs, training=training)
        return super().call(inputs, training=training, mask=mask)

    def fit(
        self, x=None, y=None, *args, callbacks=None, verbose: Any = "auto", **kwargs
    ):
        """Train; see `keras.Model.fit`. The progress bar leaves many tasks out."""
        prepared = self._prepare(y, kwargs.get("sample_weight"))
        if kwargs.get("class_weight") is None:  # Keras refuses it, for a dict.
            y = prepared
        held_out = kwargs.get("validation_data")
        if isinstance(held_out, (tuple, list)) and len(held_out) > 1:
            inputs, labels, *weights = held_out
            labels = self._prepare(labels, *weights)
            kwargs["validation_data"] = (inputs, labels, *weights)
        callbacks = self._with_short_bar(callbacks, verbose)
        return super().fit(x, y, *args, callbacks=callbacks, verbose=verbose, **kwargs)

    def evaluate(
        self, x=None, y=None, *args, callbacks=None, verbose: Any = "auto", **kwargs
    ):
        """Evaluate; see `keras.Model.evaluate`."""
        y = self._prepare(y, kwargs.get("sample_weight"))
        callbacks = self._with_short_bar(callbacks, verbose)
        settings = {"callbacks": callbacks, "verbose": verbose, **kwargs}
        return super().evaluate(x, y, *args, **settings)

    def train_step(self, *args):
        """Train on a batch, without taking the tasks apart."""
        return self._step(super().train_step, *args)

    def test_step(self, *args):
        """Evaluate a batch, without taking the tasks apart."""
        return self._step(super().test_step, *args)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The weighted sum of the tasks' losses, and the penalties of the layers."""
        gates = gates_taught_by_loss(self)
        if not self._own_losses:
            if gates:
                raise ValueError(
                    f"A `{type(gates[0]).__name__}` learns from the tasks' own losses. "
                    "Received: a loss given to `compile`. Leave it out, or take "
                    "`RoutedModel`."
                )
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if compiled_metrics(self) is not None:
            raise ValueError(
                "Metrics belong to the tasks here: give them to `Task(metrics=...)`, "
                "or give `compile` a loss as well."
            )
        # First what the layers keep: Keras shares it between replicas, which take
        # turns where they sum over all.
        terms = list(self.losses)
        read: Any = y if self._in_step else self._read(y, sample_weight)
        found = [
            group(labels, group.predictions(y_pred))
            for group, labels in zip(self.task_groups, read, strict=True)
        ]
        if gates:
            terms += self._policy_losses(gates, found)
        totals, counts = [each.total for each in found], [each.count for each in found]
        terms.append(self._task_loss(totals, counts))
        # Keras adds up the gradients of the replicas, and so divides by their number.
        return sum(added_loss(self, ops.convert_to_tensor(term)) for term in terms)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """What a step reports: sums over the tasks only, which is cheap."""
        if not self._own_losses:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        return self._sums()

    def get_metrics_result(self) -> dict:
        """What an epoch reports: the sums, and each task by its name."""
        if not self._own_losses:
            return super().get_metrics_result()
        by_task = {}
        for group in self.task_groups:
            by_task.update(group.by_task())
        results = self._sums()
        for task in self.tasks:
            results.update(by_task[task.name])
        return results

    def _get_metrics_result_or_logs(self, logs):
        # Keras keeps a step's report when it has other names than the epoch's.
        return self.get_metrics_result() if self._own_losses else logs

    @property
    def metrics(self) -> list:
        """The metrics in use: the tasks' own, or those given to `compile`."""
        if self._own_losses:
            return super().metrics
        own = {id(group) for group in self.task_groups}
        return [metric for metric in super().metrics if id(metric) not in own]

    def get_config(self) -> dict:
        """The functional model, and its tasks."""
        return {
            **super().get_config(),
            "tasks": [task.get_config() for task in self.tasks],
        }

    def _with_short_bar(self, callbacks, verbose):
        many = self._own_losses and len(self.tasks) > MANY_TASKS and verbose
        if not many or isinstance(callbacks, keras.callbacks.CallbackList):
            return callbacks
        if isinstance(callbacks, keras.callbacks.Callback):
            callbacks = [callbacks]
        return [*(callbacks or []), _ShortProgbar()]

    def _prepare(self, y, sample_weight=None):
        """Labels as they are best fed, once those on the host have been checked."""
        if y is None or not self._own_losses:
            return y
        self._check_shapes(y, sample_weight)
        y = self._as_one_array(_on_host(y))
        sample_weight = _on_host(sample_weight)
        arrays = keras.tree.flatten((y, sample_weight))
        if all(array is None or isinstance(array, np.ndarray) for array in arrays):
            for group in self.task_groups:
                group.check(y, sample_weight)
        return y

    def _as_one_array(self, labels):
        """A dict of NumPy columns as one array, which is fed and batched at once.

        An array for each of 128 tasks takes as long to feed as the step itself.
        """
        if not isinstance(labels, dict):
            return labels
        columns = [labels[task.name] for task in self.tasks]
        if not all(isinstance(column, np.ndarray) for column in columns):
            return labels
        alike = len({(column.shape, column.dtype) for column in columns}) == 1
        if not alike or columns[0].shape[1:] not in {(), (1,)}:
            return labels
        return np.stack([column.reshape(-1) for column in columns], axis=1)

    def _step(self, step, *args):
        if not self._own_losses:
            return step(*args)
        *state, data = args
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        read = self._read(y, sample_weight)
        data = _without_stray_nan(x, read), read
        self._in_step = True
        try:
            return step(*state, data)
        finally:
            self._in_step = False

    def _read(self, y, sample_weight):
        """The labels of each group, which a step reads once."""
        self._check_shapes(y, sample_weight)
        return [group.read(y, sample_weight) for group in self.task_groups]

    def _stacked_graph(self):
        """The same layers up to where tasks are named, or `None` if they are not.

        Naming splits a tensor into one for each task. With many tasks the way
        back, gradients included, costs more than the rest of the model.
        """
        unnamed = {
            tuple(layer.names): layer.input
            for layer in self.layers
            if isinstance(layer, NameTasks)
        }
        names = {g.name: tuple(t.name for t in g.tasks) for g in self.task_groups}
        if not names or not unnamed.keys() >= set(names.values()):
            return None
        stacked = {group: unnamed[own] for group, own in names.items()}
        # A function, not an attribute that is a model: its layers are ours already.
        return keras.Model(self.input, stacked).__call__

    def _task_loss(self, totals, counts):
        """The weighted sum of the tasks' means, from the sums of each group."""
        totals, counts = sum_over_replicas(
            [ops.concatenate(totals), ops.concatenate(counts)]
        )
        means = ops.divide(totals, ops.maximum(counts, 1.0))
        weights = np.array([task.weight for task in self.tasks], "float32")
        return ops.sum(ops.multiply(means, weights[self._group_order]))

    def _policy_losses(self, gates, found):
        """What gates learn from that are taught by the examples' losses."""
        losses, weights = (
            ops.take(ops.concatenate(parts, axis=1), np.argsort(self._group_order), 1)
            for parts in ([e.losses for e in found], [e.weights for e in found])
        )
        losses = ops.stop_gradient(losses)
        task_weights = np.array([task.weight for task in self.tasks], "float32")
        total = ops.sum(ops.multiply(losses * weights, task_weights), axis=1)
        labeled = ops.cast(ops.any(weights != 0, axis=1), "float32")
        num_tasks = len(self.tasks)
        return [
            gate.policy_loss(losses, weights)
            if gate.num_gates == num_tasks > 1
            else gate.policy_loss(*for_each_gate(gate, total, labeled))
            for gate in gates
        ]

    @property
    def _own_losses(self):
        return compiled_loss(self) is None

    def _sums(self):
        totals = [group.totals[0] for group in self.task_groups]
        # A part, since TensorFlow takes no variables of several replicas here.
        counts = [group.counts[:] for group in self.task_groups]
        return {
            "loss": mean_loss(self),
            "task_loss": self._task_loss(totals, counts),
        }

    def _check_shapes(self, y, sample_weight):
        """Refuse labels or sample weights that do not fit the tasks."""
        self._check_shape(y, "labels")
        if sample_weight is not None:
            self._check_shape(sample_weight, "sample weights")

    def _check_shape(self, values, what):
        names = [task.name for task in self.tasks]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        if isinstance(values, dict):
            unknown = sorted(set(values) - set(names))
            missing = sorted(set(names) - set(values))
            if unknown or missing:
                raise ValueError(
                    f"The {what} must have one entry for each task: {shown}. "
                    f"Received: unknown {unknown}, missing {missing}. For labels that "
                    "you do not have, pass NaN."
                )
            for task in self.tasks:
                task.check_shape(values[task.name], what)
        elif not hasattr(values, "shape") or (
            tuple(values.shape[1:]) != (len(names),)
            and not (len(names) == 1 and len(values.shape) == 1)
        ):
            got = getattr(values, "shape", type(values).__name__)
            raise ValueError(
                f"The {what} must be a dict by task name ({shown}), or one array of "
                f"shape (batch, {len(names)}), one column per task. Received: {got}."
            )


def _without_stray_nan(x, read):
    """Features with 0 for NaN and infinity in examples that have no label.

    It has to be here: the gradient of a kernel is NaN where a feature is, even times 0.
    """
    present = (ops.any(labels.present, axis=1) for labels in read)
    labeled = functools.reduce(ops.logical_or, present)

    def mend(values):
        dtype = getattr(values, "dtype", None)
        if dtype is None or "float" not in keras.backend.standardize_dtype(dtype):
            return values
        rows = ops.reshape(labeled, (-1, *[1] * (len(values.shape) - 1)))
        return ops.where(ops.logical_or(rows, ops.isfinite(values)), values, 0.0)

    return keras.tree.map_structure(mend, x)


def _on_host(values):
    """The same with NumPy arrays for those of pandas."""
    if isinstance(values, dict):
        return {name: _on_host(value) for name, value in values.items()}
    return values.to_numpy() if hasattr(values, "to_numpy") else values


class _ShortProgbar(keras.callbacks.ProgbarLogger):
    """A progress bar that shows the sums, and not every task."""

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, _sums_only(logs))

    def on_test_end(self, logs=None):
        super().on_test_end(_sums_only(logs))


def _sums_only(logs):
    sums = ("loss", "task_loss", "val_loss", "val_task_loss")
    return {name: logs[name] for name in sums if name in logs}
