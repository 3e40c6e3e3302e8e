"""A Keras model that trains several tasks."""

import functools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import (
    added_loss,
    all_layers,
    compiled_loss,
    compiled_metrics,
    loss_weights,
    mean_loss,
)
from dselectk_keras.gates import Gate
from dselectk_keras.models.checks_export import ChecksExport
from dselectk_keras.models.labels import (
    MANY_TASKS,
    check_features,
    check_shapes,
    for_all_tasks,
    in_task_order,
    stack_columns,
    to_numpy,
    with_rank,
    without_stray_nan,
)
from dselectk_keras.models.task import Task
from dselectk_keras.models.task_group import CompleteLabels, group_tasks
from dselectk_keras.models.task_layers import NameTasks
from dselectk_keras.models.task_losses import TaskLosses
from dselectk_keras.utils import Tensor


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MultitaskModel(ChecksExport, keras.Model):
    r"""A functional Keras model with the losses and the metrics of its tasks.

    $$
    L = \sum_t \omega_t \, \frac{1}{n_t} \sum_b m_{tb} \, \ell(y_{tb}, \hat y_{tb})
    + \text{penalties}
    $$

    where $m_{tb}$ is 0 if the label of task $t$ is missing, and else its sample weight,
    and $\omega_t$ is the weight of the task. The outputs are a dict by task name, or
    one tensor `(batch, tasks)` or `(batch, tasks, outputs)`. Tasks of the same kind
    are computed together, on an axis for the tasks.

    `label_average` says what $n_t$ is in training: `"batch"` is the number of examples
    in the batch, and `"labels"` the number of labels of the task in the batch.

    `task_weighting` multiplies $\omega_t$ by a learned weight in training:
    `"uncertainty"` (Kendall et al., CVPR 2018), or an object with two methods. In each
    training step, the model calls them in this order:

    - `penalty(losses, shares)` gets the mean loss of each task over its labels, without
      a gradient, and its number of labels divided by $n_t$: 0 without labels. It
      returns one number per task, which is multiplied by $\omega_t$ and added to the
      loss. It may update the object's variables.
    - `weights_of_losses()` returns the factor of each $\omega_t$.

    Let the object be a `keras.Layer`: the model trains and saves its variables, and
    calls its `build` with the shape `(tasks,)`. Register it with
    `keras.saving.register_keras_serializable`, so that the model can be loaded.
    `task_weights` has the present weights.

    Labels are a dict by task name, or one array `(samples, tasks)`. Sample weights
    have the same form, or are one array `(samples,)` for all tasks. A label is missing
    if it is NaN (for classes, if it is negative or the `ignore_class` of the loss), or
    if its sample weight is 0. Missing labels and their predictions do not change the
    loss. If all labels of an example are missing, NaN and infinite features of this
    example are replaced by 0.

    `fit` and `evaluate` check labels that are NumPy or pandas arrays, and raise a
    `ValueError` for impossible labels, such as class 7 of 3. They also refuse sample
    weights that are not finite, and NaN or infinite features that make the prediction
    of an example with a label NaN. From other sources, such as a `tf.data.Dataset`,
    these make the loss NaN.

    Under `tf.distribute`, the mean of a task is over the labels of all replicas, and a
    gate's penalties are over the examples of all, so that the loss equals the loss of
    one process with the whole batch.

    `fit` and `evaluate` report `loss`, `task_loss` (without penalties), and
    `{task}_loss` and `{task}_{metric}` for each task. All but `loss` are means over the
    labels, with the weights $\omega_t$. As in Keras, `loss` is the mean over the
    batches: monitor `val_task_loss` where labels are missing. A sample weight
    multiplies a loss, and the metrics are weighted means. `EarlyStopping` and similar
    callbacks can monitor each of them, without `mode`.

    `build_multitask_model` returns such a model. `compile` needs only an optimizer. A
    loss and metrics that are given to `compile` replace those of all tasks.

    `keras.models.clone_model` loses the tasks. `copy.deepcopy` copies the model, and
    `MultitaskModel.from_config(model.get_config())` does so with new weights.

    Args:
        *args: Inputs and outputs, as for `keras.Model`.
        tasks: The tasks, in the order of the outputs.
        label_average: `"batch"` or `"labels"`.
        task_weighting: `None`, `"uncertainty"`, or an object as above.
        **kwargs: The other arguments of `keras.Model`.
    """

    def __init__(
        self,
        *args: Any,
        tasks: Iterable[Task | dict] = (),
        label_average: str = "batch",
        task_weighting: Any = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.tasks = tuple(
            task if isinstance(task, Task) else Task.from_config(task) for task in tasks
        )
        self.task_groups = group_tasks(self.tasks)
        indices = [i for group in self.task_groups for i in group.indices]
        # Each task's place in the order of the groups, which may differ in a copy: what
        # is kept of the tasks is in their own order.
        self._places = np.argsort(indices)
        self.task_losses = TaskLosses(self.tasks, label_average, task_weighting)
        self._call_stacked = self._stacked_graph()
        self._in_step = False

    def call(self, inputs: Tensor, training: bool | None = None, mask: Any = None):
        """Compute the outputs; inside a step, those by name as one tensor per group."""
        if self._in_step and self._call_stacked is not None:
            return self._call_stacked(inputs, training=training)
        return super().call(inputs, training=training, mask=mask)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        **kwargs: Any,
    ):
        """Train as `keras.Model.fit`; with many tasks, the progress bar is short."""
        prepared, weights = self._prepare(x, y, kwargs.get("sample_weight"))
        if kwargs.get("class_weight") is not None:
            if self._own_losses and len(self.tasks) > 1:
                raise ValueError(
                    "`class_weight` is only supported for a model of one task. "
                    f"Received: a model of {len(self.tasks)} tasks. Pass "
                    "`sample_weight`, a dict by task name or an array with one column "
                    "per task."
                )
            # Keras computes the sample weights from an array.
            if isinstance(prepared, CompleteLabels):
                prepared = prepared.labels
        held_out = kwargs.get("validation_data")
        if isinstance(held_out, (tuple, list)) and len(held_out) > 1:
            inputs, *targets = held_out
            kwargs["validation_data"] = (inputs, *self._prepare(inputs, *targets))
        self._set_modes(callbacks)
        kwargs["callbacks"] = self._with_short_bar(callbacks, verbose)
        kwargs["sample_weight"] = weights
        return super().fit(x, prepared, batch_size, epochs, verbose, **kwargs)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        **kwargs: Any,
    ):
        """Evaluate as `keras.Model.evaluate`."""
        y, sample_weight = self._prepare(x, y, sample_weight)
        callbacks = self._with_short_bar(callbacks, verbose)
        return super().evaluate(
            x, y, batch_size, verbose, sample_weight, steps, callbacks, **kwargs
        )

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any
    ):
        """Train on one batch as `keras.Model.train_on_batch`."""
        return super().train_on_batch(x, *self._arrays(y, sample_weight), **kwargs)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any
    ):
        """Evaluate one batch as `keras.Model.test_on_batch`."""
        return super().test_on_batch(x, *self._arrays(y, sample_weight), **kwargs)

    def train_step(self, *args: Any):
        """Train on a batch, with one prediction tensor per group of tasks."""
        return self._step(super().train_step, *args)

    def test_step(self, *args: Any):
        """Evaluate a batch, with one prediction tensor per group of tasks."""
        return self._step(super().test_step, *args)

    def predict_step(self, *args: Any):
        """Predict a batch, with one prediction tensor per group of tasks."""
        return self._stacked(super().predict_step, *args)

    def predict(self, *args: Any, **kwargs: Any):
        """Predict as `keras.Model.predict`."""
        return self._by_name(super().predict(*args, **kwargs))

    def predict_on_batch(self, x: Any):
        """Predict as `keras.Model.predict_on_batch`."""
        return self._by_name(super().predict_on_batch(x))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ):
        """Compute the weighted sum of the tasks' losses, plus the layers' penalties."""
        gates = gates_taught_by_loss(self)
        if not self._own_losses:
            if gates:
                raise ValueError(
                    f"A `{type(gates[0]).__name__}` learns from the losses of the "
                    "tasks. Received: a loss given to `compile`. Call `compile` "
                    "without a loss, or use `RoutedModel`."
                )
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if compiled_metrics(self) is not None:
            raise ValueError(
                "`compile` takes metrics only together with a loss. Received: metrics "
                "without a loss. For metrics of a task, give them to "
                "`Task(metrics=...)`."
            )
        if loss_weights(self) is not None:
            raise ValueError(
                "`compile` takes `loss_weights` only together with a loss. Received: "
                f"loss_weights={loss_weights(self)} without a loss. For the weight of "
                "a task, use `Task(weight=...)`."
            )
        # Read `self.losses` before any sum over replicas: replicas share this list, and
        # take turns at a sum.
        terms = list(self.losses)
        read: Any = y if self._in_step else self._read(y, sample_weight)
        found = [
            group(labels, group.predictions(y_pred))
            for group, labels in zip(self.task_groups, read, strict=True)
        ]
        if gates:
            terms.append(self._policy_losses(gates, found))
        totals = self._by_task([each.total for each in found])
        counts = self._by_task([each.count for each in found])
        if training:
            examples = ops.shape(found[0].losses)[0]
            terms.append(self.task_losses.training_loss(totals, counts, examples))
        else:
            terms.append(self.task_losses.reported_loss(totals, counts))
        # Keras sums the gradients of the replicas, so each loss is divided by their
        # number.
        return sum(added_loss(self, ops.convert_to_tensor(term)) for term in terms)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Compute the report of a step: only the sums over the tasks, for speed."""
        if not self._own_losses:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        return self._sums()

    def get_metrics_result(self) -> dict[str, Any]:
        """Compute the report of an epoch: the sums, and the metrics of each task."""
        if not self._own_losses:
            return super().get_metrics_result()
        results = self._sums()
        for group in self.task_groups:
            results.update(group.results_by_name())
        return results

    def _get_metrics_result_or_logs(self, logs):
        # Keras would report the last step if its names differ from the epoch's.
        return self.get_metrics_result() if self._own_losses else logs

    @property
    def task_weights(self) -> dict[str, float]:
        """The present weight of each task: its fixed weight, times the learned one."""
        weights = ops.convert_to_numpy(self.task_losses.weights_now())
        names = [task.name for task in self.tasks]
        return dict(zip(names, weights.tolist(), strict=True))

    @property
    def metrics(self) -> list:
        """The metrics in use: those of the tasks, or those given to `compile`."""
        if self._own_losses:
            return super().metrics
        own = {id(group) for group in self.task_groups}
        return [metric for metric in super().metrics if id(metric) not in own]

    def get_config(self) -> dict[str, Any]:
        """Return the config of the functional model, with the tasks."""
        return {
            **super().get_config(),
            "tasks": [task.get_config() for task in self.tasks],
            "label_average": self.task_losses.label_average,
            "task_weighting": self.task_losses.serialized_weighting(),
        }

    def _set_modes(self, callbacks):
        """Say to callbacks such as `EarlyStopping` which way a number gets better.

        Keras knows this only of metrics that are given to `compile`.
        """
        if not self._own_losses:
            return
        modes = {"task_loss": "min"}
        for group in self.task_groups:
            modes.update(group.modes)
        for callback in keras.tree.flatten(callbacks):
            name = getattr(callback, "monitor", "").removeprefix("val_")
            if name and callback.mode == "auto":
                callback.mode = modes.get(name, "auto")
            # Such as `OnceDecided`, which holds other callbacks.
            self._set_modes(getattr(callback, "callbacks", ()))

    def _with_short_bar(self, callbacks, verbose):
        many = self._own_losses and len(self.tasks) > MANY_TASKS and verbose
        if not many or isinstance(callbacks, keras.callbacks.CallbackList):
            return callbacks
        if isinstance(callbacks, keras.callbacks.Callback):
            callbacks = [callbacks]
        return [*(callbacks or []), _ShortProgbar()]

    def _arrays(self, *values):
        """Convert tables to arrays, with the columns in the order of the tasks."""
        return [to_numpy(in_task_order(self.tasks, value)) for value in values]

    def _prepare(self, x, y, sample_weight=None):
        """Check NumPy arrays, and stack labels into one array if possible.

        Labels and weights are ordered by task. Labels that need no masks become
        `CompleteLabels`.
        """
        y = in_task_order(self.tasks, y)
        sample_weight = in_task_order(self.tasks, sample_weight)
        sample_weight = for_all_tasks(self.tasks, sample_weight)
        # `fit` prepares the labels of the validation before `evaluate` gets them.
        if y is None or not self._own_losses or isinstance(y, CompleteLabels):
            return y, sample_weight
        check_shapes(self.tasks, y, sample_weight)
        y, weights = to_numpy(y), to_numpy(sample_weight)
        arrays = keras.tree.flatten((y, weights))
        stacked = stack_columns(self.tasks, y)
        if all(array is None or isinstance(array, np.ndarray) for array in arrays):
            complete = [group.check(stacked, weights) for group in self.task_groups]
            check_features(
                self, x, functools.partial(self._labeled, (stacked, weights))
            )
            if all(complete) and weights is None:
                return CompleteLabels(stacked), None
        return stacked, weights

    def _labeled(self, given, rows):
        """Whether each of these rows of NumPy labels and weights has a label."""
        y, weights = keras.tree.map_structure(
            lambda array: None if array is None else array[rows], given
        )
        read = (group.read(y, weights, xp=np) for group in self.task_groups)
        return np.any([each.present.any(axis=1) for each in read], axis=0)

    def _step(self, step, *args):
        """Run a step of Keras with stacked predictions, and labels read only once."""
        if not self._own_losses:
            return step(*args)
        *state, data = args
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        read = self._read(y, sample_weight)
        return self._stacked(step, *state, (without_stray_nan(x, read), read))

    def _stacked(self, step, *args):
        """Run a step of Keras with stacked predictions."""
        self._in_step = True
        try:
            return step(*args)
        finally:
            self._in_step = False

    def _by_name(self, outputs):
        """Split the stacked predictions of all batches by task, as NumPy views."""
        if self._call_stacked is None:
            return outputs
        columns = {
            task.name: outputs[group.name][:, place]
            for group in self.task_groups
            for place, task in enumerate(group.tasks)
        }
        return {task.name: columns[task.name] for task in self.tasks}

    def _read(self, y, sample_weight):
        """Read the labels of each group."""
        y, sample_weight = with_rank((y, sample_weight))
        sample_weight = for_all_tasks(self.tasks, sample_weight)
        if not isinstance(y, CompleteLabels):
            check_shapes(self.tasks, y, sample_weight)
        return [group.read(y, sample_weight) for group in self.task_groups]

    def _stacked_graph(self):
        """Build a function that returns the predictions of each group as one tensor.

        `NameTasks` splits a tensor into one per task. With many tasks, splitting,
        stacking and their gradients cost more than the rest of the model. A model with
        other outputs than those of `NameTasks` has no such function: the result is
        `None`.
        """
        named = [layer for layer in self.layers if isinstance(layer, NameTasks)]
        unnamed = {tuple(layer.names): layer.input for layer in named}
        names = {g.name: tuple(t.name for t in g.tasks) for g in self.task_groups}
        own = {id(tensor) for tensor in keras.tree.flatten([x.output for x in named])}
        others = {id(tensor) for tensor in self.outputs} - own
        if not named or others or unnamed.keys() != set(names.values()):
            return None
        stacked = {group: unnamed[own] for group, own in names.items()}
        # Keras would track an attribute that is a model, and its layers twice.
        return keras.Model(self.input, stacked).call

    def _policy_losses(self, gates, found):
        """Compute the mean of the losses of gates that learn from the examples' losses.

        Their reward is minus the weighted loss. A task of weight 0 has no labels here.
        """
        task_weights = self.task_losses.weights_now()
        losses = self._by_task([each.losses for each in found]) * task_weights
        losses = ops.stop_gradient(losses)
        weights = self._by_task([each.weights for each in found])
        weights = ops.where(task_weights != 0, weights, 0.0)
        # As in `RoutedModel`, sample weights are part of a reward of several losses.
        total = ops.sum(losses * weights, axis=1)
        labeled = ops.cast(ops.any(weights != 0, axis=1), "float32")
        if len(self.tasks) == 1:
            total, labeled = losses[:, 0], weights[:, 0]
        terms: Any = [
            gate.policy_loss(losses, weights)
            if gate.num_gates == len(self.tasks) > 1
            else gate.policy_loss(*for_each_gate(gate, total, labeled))
            for gate in gates
        ]
        return sum(terms) / len(terms)

    @property
    def _own_losses(self):
        return compiled_loss(self) is None

    def _sums(self):
        totals = self._by_task([group.totals[0] for group in self.task_groups])
        counts = self._by_task([group.counts[0] for group in self.task_groups])
        task_loss = self.task_losses.reported_loss(totals, counts)
        return {"loss": mean_loss(self), "task_loss": task_loss}

    def _by_task(self, parts):
        """Join numbers of all groups on the last axis, in the order of the tasks."""
        if len(parts) == 1:
            return parts[0]
        joined = ops.concatenate(parts, axis=-1)
        in_order = (np.diff(self._places) > 0).all()
        return joined if in_order else ops.take(joined, self._places, axis=-1)


def gates_taught_by_loss(model: keras.Model) -> list[Any]:
    """List the gates of a model that learn from its loss: those with `policy_loss`."""
    return [layer for layer in all_layers(model) if hasattr(layer, "policy_loss")]


def for_each_gate(gate: Gate, *values: Tensor) -> list[Tensor]:
    """Repeat numbers `(batch,)` for each gate: `(batch, num_gates)`.

    For a single gate they stay as they are.
    """
    if gate.num_gates is None:
        return list(values)
    return [ops.repeat(value[:, None], gate.num_gates, axis=1) for value in values]


class _ShortProgbar(keras.callbacks.ProgbarLogger):
    """A progress bar that shows no task by itself."""

    # The last two are of `GateRecorder`.
    NAMES = ("loss", "task_loss", "val_loss", "val_task_loss", "binary", "experts")

    def on_epoch_end(self, epoch, logs: Any = None):
        super().on_epoch_end(epoch, {n: logs[n] for n in self.NAMES if n in logs})

    def on_test_end(self, logs: Any = None):
        super().on_test_end({n: logs[n] for n in self.NAMES if n in logs})
