"""A Keras model with tasks."""

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
from dselectk_keras.models.routed_model import reinforce_gates
from dselectk_keras.models.task import Task
from dselectk_keras.models.task_group import group_tasks
from dselectk_keras.models.task_layers import NameTasks

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
    come in the same form as labels. `fit` and `evaluate` report `loss`,
    `task_loss` (without penalties), and `{task}_loss` and `{task}_{metric}` for
    each task.

    `build_multitask_model` makes one. `compile` needs an optimizer only; a loss
    given to it, with metrics if wanted, replaces those of all the tasks.

    Args:
        *args: Inputs and outputs, as for `keras.Model`.
        tasks: The tasks, in the order of the outputs.
        **kwargs: The other arguments of `keras.Model`.
    """

    def __init__(self, *args, tasks=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.tasks = tuple(
            task if isinstance(task, Task) else Task.from_config(task) for task in tasks
        )
        self.task_groups = group_tasks(self.tasks)
        self._predict_stacked = self._stacked_graph()
        self._in_step = False

    def call(self, inputs, training=None, mask=None):
        """The outputs by task name; inside a step, one tensor for each group."""
        if self._in_step and self._predict_stacked is not None:
            return self._predict_stacked(inputs, training=training)
        return super().call(inputs, training=training, mask=mask)

    def fit(
        self, x=None, y=None, *args, callbacks=None, verbose: Any = "auto", **kwargs
    ):
        """Train; see `keras.Model.fit`. The progress bar leaves many tasks out."""
        if y is not None and self._own_losses:
            self._check(y, "labels")
        if kwargs.get("class_weight") is None:  # Keras refuses it, for a dict.
            y = self._side_by_side(y)
        held_out = kwargs.get("validation_data")
        if isinstance(held_out, (tuple, list)) and len(held_out) > 1:
            inputs, labels, *rest = held_out
            kwargs["validation_data"] = (inputs, self._side_by_side(labels), *rest)
        callbacks = self._with_short_bar(callbacks, verbose)
        return super().fit(x, y, *args, callbacks=callbacks, verbose=verbose, **kwargs)

    def evaluate(
        self, x=None, y=None, *args, callbacks=None, verbose: Any = "auto", **kwargs
    ):
        """Evaluate; see `keras.Model.evaluate`."""
        callbacks = self._with_short_bar(callbacks, verbose)
        settings = {"callbacks": callbacks, "verbose": verbose, **kwargs}
        return super().evaluate(x, self._side_by_side(y), *args, **settings)

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
        if not self._own_losses:
            if reinforce_gates(self):
                raise ValueError(
                    "A `ReinforceGate` learns from the tasks' own losses. Received: a "
                    "loss given to `compile`. Leave it out, or take `RoutedModel`."
                )
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if compiled_metrics(self) is not None:
            raise ValueError(
                "Metrics belong to the tasks here: give them to `Task(metrics=...)`, "
                "or give `compile` a loss as well."
            )
        self._check(y, "labels")
        self._check(sample_weight, "sample weights")
        found = [
            group(y, group.predictions(y_pred), sample_weight)
            for group in self.task_groups
        ]
        loss = sum(weighted for weighted, _, _ in found)
        penalties = [added_loss(self, term) for term in self.losses]
        return loss + sum(penalties) + self._policy_loss(found)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """What a step reports: sums over the tasks only, which is cheap."""
        if not self._own_losses:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        return self._sums()

    def get_metrics_result(self):
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
    def metrics(self):
        """The metrics in use: the tasks' own, or those given to `compile`."""
        if self._own_losses:
            return super().metrics
        own = {id(group) for group in self.task_groups}
        return [metric for metric in super().metrics if id(metric) not in own]

    def get_config(self):
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

    def _side_by_side(self, labels):
        """A dict of columns as one array, which is fed and batched at once.

        An array for each of 128 tasks takes as long to feed as the step itself.
        """
        if not self._own_losses or not isinstance(labels, dict):
            return labels
        if set(labels) != {task.name for task in self.tasks}:
            return labels
        columns = [labels[task.name] for task in self.tasks]
        if not all(
            isinstance(c, np.ndarray) or hasattr(c, "to_numpy") for c in columns
        ):
            return labels
        columns = [np.asarray(column) for column in columns]
        shape, *others = {column.shape for column in columns}
        alike = not others and len({column.dtype for column in columns}) == 1
        if not alike or len(shape) not in {1, 2} or shape[1:] not in {(), (1,)}:
            return labels
        return np.stack([column.reshape(-1) for column in columns], axis=1)

    def _step(self, step, *args):
        self._in_step = self._own_losses
        try:
            return step(*args)
        finally:
            self._in_step = False

    def _stacked_graph(self):
        """The same layers up to where tasks are named, or `None` if they are not.

        Naming splits a tensor into one for each task. With many tasks the way
        back, gradients included, costs more than the rest of the model.
        """
        naming = {
            tuple(layer.names): layer
            for layer in self.layers
            if isinstance(layer, NameTasks)
        }
        groups = [tuple(t.name for t in group.tasks) for group in self.task_groups]
        if not groups or not all(names in naming for names in groups):
            return None
        stacked = {
            group.name: naming[names].input
            for group, names in zip(self.task_groups, groups, strict=True)
        }
        # A function, not an attribute that is a model: its layers are ours already.
        return keras.Model(self.input, stacked).__call__

    def _policy_loss(self, found):
        """What gates learn from that are taught by the examples' losses."""
        gates = reinforce_gates(self)
        if not gates:
            return 0.0
        order = np.argsort(np.concatenate([g.indices for g in self.task_groups]))
        losses, weights = (
            ops.take(ops.concatenate([each[i] for each in found], axis=1), order, 1)
            for i in (1, 2)
        )
        task_weights = np.array([task.weight for task in self.tasks], "float32")
        losses = ops.stop_gradient(losses)
        total = ops.sum(ops.multiply(losses * weights, task_weights), axis=1)
        labeled = ops.cast(ops.any(weights != 0, axis=1), "float32")
        terms = []
        for gate in gates:
            if gate.num_gates == len(self.tasks) > 1:
                terms.append(gate.policy_loss(losses, weights))
            elif gate.num_gates is None:
                terms.append(gate.policy_loss(total, labeled))
            else:
                for_each = (
                    ops.repeat(values[:, None], gate.num_gates, axis=1)
                    for values in (total, labeled)
                )
                terms.append(gate.policy_loss(*for_each))
        return sum(terms)

    @property
    def _own_losses(self):
        return compiled_loss(self) is None

    def _sums(self):
        return {
            "loss": mean_loss(self),
            "task_loss": sum(group.mean_loss() for group in self.task_groups),
        }

    def _check(self, values, what):
        """Refuse labels or sample weights that do not fit the tasks."""
        if values is None and what == "sample weights":
            return
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
                f"shape (batch, {len(names)}), one column a task. Received: {got}."
            )


class _ShortProgbar(keras.callbacks.ProgbarLogger):
    """A progress bar that shows the sums, and not every task."""

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, _sums_only(logs))

    def on_test_end(self, logs=None):
        super().on_test_end(_sums_only(logs))


def _sums_only(logs):
    sums = ("loss", "task_loss", "val_loss", "val_task_loss")
    return {name: logs[name] for name in sums if name in logs}
