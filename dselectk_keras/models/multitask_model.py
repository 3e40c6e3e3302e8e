"""A Keras model that trains several tasks."""

import inspect
import re
import types
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import compile_arguments, track_layer
from dselectk_keras.distribution import num_replicas
from dselectk_keras.gates.chosen import warn_if_random
from dselectk_keras.models.check_labels import (
    check_has_tasks,
    check_labels,
    check_shapes,
)
from dselectk_keras.models.columns import (
    as_inputs,
    as_labels,
    table_reader,
    with_joined_labels,
)
from dselectk_keras.models.grouped import by_group, by_name
from dselectk_keras.models.label_reader import in_order, make_readers
from dselectk_keras.models.streams import ReadLoader, as_stream
from dselectk_keras.models.task import as_tasks
from dselectk_keras.models.task_losses import TaskLosses
from dselectk_keras.models.task_metrics import TaskMetrics
from dselectk_keras.utils import check_keywords

# Arguments of `compile` that need a loss.
WITH_LOSS = ("loss_weights", "metrics", "weighted_metrics")
DATA = ("x", "y", "sample_weight")
FEW_TASKS = 3  # Whose metrics `fit` prints.
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MultitaskModel(keras.Model):
    r"""A functional Keras model with the losses and the metrics of its tasks.

    $$
    L = \sum_t \omega_t \, \frac{1}{n_t} \sum_b m_{tb} \, \ell(y_{tb}, \hat y_{tb})
    + \text{penalties}
    $$

    where $\omega_t$ is the weight of the task, and $m_{tb}$ the sample weight of its
    label, or 0 if the label is missing: if it is NaN (for classes, if it is negative or
    the `ignore_class` of the loss). Missing labels and their predictions do not change
    the loss. Impossible labels make it NaN; `check_labels`, which `fit` calls for
    arrays, says which. Tasks of the same kind are computed together.

    The outputs are a dict by task name, or one tensor `(batch, tasks)` or `(batch,
    tasks, outputs)`. Labels are a dict, or one array `(samples, tasks)`. Sample weights
    have the same form, or are one array `(samples,)` for all tasks.

    If the inputs have names, `fit`, `evaluate`, `predict` and steps such as
    `train_on_batch` take a data frame that has columns of these names. Missing numbers
    are NaN, missing strings empty. With a `table_encoder`, they also take a dict of raw
    columns, and streams of both.

    `fit` and `evaluate` report `loss`, `task_loss` (without penalties), and
    `{task}_loss` and `{task}_{metric}` for each task; steps, such as
    `train_on_batch`, only the first two, and `get_metrics_result` has the others. All
    but `loss` are means over the labels, with the weights $\omega_t$. As in Keras,
    `loss` is the mean over the batches: monitor `val_task_loss` where labels are
    missing. Under `tf.distribute`, means are over the labels of all replicas. Of more
    than three tasks, `fit` prints the sums alone, unless its `callbacks` have a
    `keras.callbacks.ProgbarLogger`.

    `compile` needs only an optimizer. A loss and metrics that are given to `compile`
    replace those of all tasks. `keras.models.clone_model` loses the tasks: use
    `copy.deepcopy`, or `from_config(model.get_config())` for new weights.

    Args:
        *args: The inputs, as for `keras.Model`, and the outputs: a dict with those of
            each task, or one tensor.
        tasks: The tasks, in the order of the outputs: a list of `Task`; or a list of
            names, or a number, for regression tasks. `None` is a model that only
            predicts.
        label_average: What $n_t$ is in training: the number of examples in the batch
            (`"batch"`), or of labels of the task in the batch (`"labels"`).
        task_weighting: `None`, or what multiplies $\omega_t$ by a learned weight in
            training: `"uncertainty"` (Kendall et al., CVPR 2018), the name of a layer
            of the model, such as `GradNorm`, or a `keras.Layer` with two methods, which
            is built with the shape `(tasks,)` if it is not part of the model. In each
            step,
            `penalty(losses, shares)` gets the mean loss of each task, without a
            gradient, and its number of labels divided by $n_t$; it returns one number
            per task, which is multiplied by $\omega_t$ and added to the loss. Then
            `weights_of_losses()` returns the factor of each $\omega_t$.
        **kwargs: `name`, and `trainable`, whether the layers are trainable.
    """

    def __init__(
        self,
        *args: Any,
        tasks: Any = None,
        label_average: str = "batch",
        task_weighting: Any = None,
        **kwargs: Any,
    ):
        check_keywords(type(self), kwargs)
        super().__init__(*args, **kwargs)
        self.tasks = () if tasks is None else self._checked(tasks)
        if isinstance(task_weighting, str):
            named = {each.name: each for each in self.layers}
            task_weighting = named.get(task_weighting, task_weighting)
        self.task_losses = TaskLosses(self.tasks, label_average, task_weighting)
        track_layer(self, self.task_losses)
        self.readers = make_readers(self.tasks)
        self.task_metrics = TaskMetrics(self.readers)
        self.training_data = types.SimpleNamespace()

    def _checked(self, tasks):
        """Convert the tasks, or raise an error if they do not fit the outputs."""
        tasks, outputs = as_tasks(tasks), self.output
        names = [task.name for task in tasks]
        fits = (
            {*names} <= {*outputs}
            if isinstance(outputs, dict)
            else getattr(outputs, "shape", ())[1:2] == (len(tasks),)
        )
        if not fits:
            raise ValueError(
                "`outputs` must be a dict with the names of all tasks, or one tensor "
                f"(batch, tasks). Received: the tasks {names} and {outputs!r}."
            )
        return tasks

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train as `keras.Model.fit`, after `check_labels` if there are arrays."""
        given = _arguments("fit", self, x, y, *args, **kwargs)
        data = (given.get(name) for name in DATA)
        settings = {"class_weight": given.get("class_weight"), "training": True}
        data = self.prepare(*data, **settings)
        given.update(zip(DATA, data, strict=True))
        if isinstance(given["x"], ReadLoader):
            given["shuffle"] = False  # The loader does it.
        if isinstance(held_out := given.get("validation_data"), (tuple, list)):
            given["validation_data"] = self.prepare(*held_out)[: len(held_out)]
        elif held_out is not None:
            given["validation_data"] = as_stream(self, held_out)
        callbacks = keras.tree.flatten(given.get("callbacks") or [])
        bars = (keras.callbacks.ProgbarLogger, keras.callbacks.CallbackList)
        has_bar = any(isinstance(each, bars) for each in callbacks)
        if len(self.tasks) > FEW_TASKS and given.get("verbose") != 0 and not has_bar:
            given["callbacks"] = [*callbacks, SumsAlone()]
        # For callbacks that take a sample. Keras would track the arrays in a dict.
        names = {*DATA, "class_weight"}
        if given.get("validation_data") is None:
            names.add("validation_split")
        sample = {name: given[name] for name in names & {*given}}
        self.training_data = types.SimpleNamespace(**sample)
        try:
            history = super().fit(**self._joined_streams(given))
        finally:
            self.training_data = types.SimpleNamespace()
        warn_if_random(self)
        return history

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Train as `keras.Model.train_on_batch`."""
        given = _arguments("train_on_batch", self, *args, **kwargs)
        self._check_training(given.get("class_weight"))
        return super().train_on_batch(**self._read_batch(given))

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as `keras.Model.test_on_batch`."""
        given = _arguments("test_on_batch", self, *args, **kwargs)
        return super().test_on_batch(**self._read_batch(given))

    def _read_batch(self, given):
        """Convert tables and columns among the arguments of a step."""
        x, y, weights = (given.get(name) for name in DATA)
        labels = y.values() if isinstance(y, dict) else [y]
        # Tensors stay on their device.
        if self.loss is None and y is not None and not any(map(ops.is_tensor, labels)):
            y, weights = as_labels(self.tasks, y, weights)
        return given | dict(zip(DATA, (as_inputs(self, x), y, weights), strict=True))

    def _joined_streams(self, given):
        """Join labels by name of batches that the arguments of a method yield."""
        if self.loss is not None or not self.tasks:
            return given
        streams = {"x", "validation_data"} & {*given}
        if given.get("y") is not None:
            streams -= {"x"}
        return {
            name: with_joined_labels(self.tasks, each) if name in streams else each
            for name, each in given.items()
        }

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as `keras.Model.evaluate`, after `check_labels`."""
        # `fit` has checked its data. It calls this with private arguments.
        if any(name.startswith("_") for name in kwargs):
            return super().evaluate(x, y, *args, **kwargs)
        given = _arguments("evaluate", self, x, y, *args, **kwargs)
        data = self.prepare(*(given.get(name) for name in DATA))
        given.update(zip(DATA, data, strict=True))
        return super().evaluate(**self._joined_streams(given))

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict as `keras.Model.predict`."""
        x = as_stream(self, as_inputs(self, x))
        if any(
            getattr(each, "shape", ())[:1] == (0,) for each in keras.tree.flatten(x)
        ):
            raise ValueError("`predict` needs one row or more. Received: no rows.")
        found = super().predict(x, *args, **kwargs)
        return by_name(self.readers, found, self.output)

    def predict_on_batch(self, x: Any) -> Any:
        """Predict as `keras.Model.predict_on_batch`."""
        found = super().predict_on_batch(as_inputs(self, x))
        return by_name(self.readers, found, self.output)

    def predict_step(self, *args: Any) -> Any:
        """Predict for a batch, in few arrays, which `predict` splits by name."""
        found = super().predict_step(*args)
        if isinstance(found, tuple):  # On JAX, with the state of the model.
            return by_group(self.readers, found[0]), *found[1:]
        return by_group(self.readers, found)

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Export as `keras.Model.export`, with names of inputs that TensorFlow takes.

        Other characters than letters and digits become `_`, as in `user_id`. The
        SavedModel of a model with a table encoder takes raw columns, with strings. Of
        dates, it takes what `convert_columns` makes of them.
        """
        model: Any = self
        given = _arguments("export", self, *args, **kwargs)
        is_saved_model = given.get("format", "tf_saved_model") == "tf_saved_model"
        encoder = table_reader(self)
        if encoder is not None and is_saved_model and ON_TENSORFLOW:
            columns = encoder.raw_columns()
            model = keras.Model(columns.input, self(columns.output))
        specs: dict[str, Any] = {}
        for tensor in model.inputs:
            name = re.sub(r"[^A-Za-z0-9.]", "_", tensor.name)
            name = f"input{name}" if name.startswith("_") else name
            while name in specs:
                name = f"{name}_"
            specs[name] = keras.InputSpec(tensor.dtype, tensor.shape, name=name)
        if [*specs] != [tensor.name for tensor in model.inputs]:
            signature = keras.tree.pack_sequence_as(model.input, [*specs.values()])
            given = {"input_signature": [signature], **given}
        return keras.Model.export(model, **given)

    def prepare(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        training: bool = False,
    ) -> tuple:
        """Check data as `fit` and `evaluate` do, and convert tables and columns.

        Keras would slice each column in each step. Data that are no arrays, such as
        batches, stay as they are.
        """
        if training:
            self._check_training(class_weight)
        if self.loss is None and self.tasks and y is not None:
            y, sample_weight = as_labels(self.tasks, y, sample_weight)
        x = as_stream(self, as_inputs(self, x))
        self._check(x, y, sample_weight, training)
        return x, y, sample_weight

    def _check_training(self, class_weight):
        """Raise an error for what would have no effect in training, or a wrong one."""
        if class_weight and len(self.tasks) > 1:
            raise ValueError(
                "`class_weight` is only for a model of one task. Received: a model "
                f"of {len(self.tasks)} tasks. Pass `sample_weight`, a dict by task "
                "name or an array with one column per task."
            )
        idle = {
            "task_weighting": self.task_losses.weighting is not None,
            "label_average": self.task_losses.label_average != "batch",
            "Task(weight=...)": any(task.weight != 1 for task in self.tasks),
        }
        if self.loss is not None and (named := [name for name in idle if idle[name]]):
            raise ValueError(
                "A loss in `compile` replaces those of the tasks, with their weights. "
                f"Received: loss={self.loss!r} and {', '.join(named)}, which would do "
                "nothing. Leave out the loss, or these."
            )

    def _check(self, x, y, sample_weight, training):
        """Check what `compile` got, and arrays, unless `compile` got a loss."""
        if self.loss is not None:
            by_name = y is None or isinstance(y, dict)
            if isinstance(self.output, dict) and not by_name:
                raise ValueError(
                    "A loss in `compile` replaces those of the tasks, and needs labels "
                    f"by task name. Received: loss={self.loss!r} and labels of the "
                    f"type {type(y).__name__}. Leave the loss out, since each task has "
                    "its own, or pass a dict of labels."
                )
            return
        given = compile_arguments(self)
        if any(given.get(name) for name in WITH_LOSS):
            raise ValueError(
                "`compile` takes metrics and `loss_weights` only together with a loss. "
                "Received: none. For the metrics and the weight of a task, use "
                "`Task(metrics=..., weight=...)`."
            )
        if y is not None:
            check_labels(self, x, y, sample_weight, training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Compute the weighted sum of the tasks' losses, plus the layers' penalties."""
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        check_has_tasks(self)
        # First the penalties: replicas share `losses`, and take turns at a sum.
        penalties: Any = super().compute_loss() if self.losses else None
        check_shapes(self.tasks, y, sample_weight)
        groups = [reader.predictions(y_pred) for reader in self.readers]
        pairs = [*zip(self.readers, groups, strict=True)]
        reads = [reader.read(y, own, sample_weight) for reader, own in pairs]
        pairs = zip(self.readers, reads, strict=True)
        losses = [reader.sum_losses(read) for reader, read in pairs]
        self.task_metrics.update_state(reads, losses)
        totals = in_order(self.readers, losses)
        counts = in_order(self.readers, [read.counts for read in reads])
        if training:
            examples = ops.shape(groups[0])[0]
            loss = self.task_losses.training_loss(totals, counts, examples)
        else:
            loss = self.task_losses.reported_loss(totals, counts)
        # As Keras does with each loss, since the gradients of replicas are added up. A
        # layer in half precision has penalties in it.
        loss = loss / num_replicas()
        return loss if penalties is None else loss + ops.cast(penalties, loss.dtype)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Compute the report of a step: only the sums over the tasks, for speed."""
        if self.loss is not None:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        return super().get_metrics_result()

    def get_metrics_result(self) -> dict[str, Any]:
        """Compute the report of an epoch: the sums, and the metrics of each task."""
        report = dict(super().get_metrics_result())
        for group in self.task_metrics.groups if self.loss is None else ():
            report |= group.result()
        return report

    def _get_metrics_result_or_logs(self, logs):
        # Keras would report the last step if its names differ from the epoch's.
        return self.get_metrics_result()

    @property
    def task_weights(self) -> dict[str, float]:
        """The present weight of each task: its fixed weight, times the learned one."""
        weights = ops.convert_to_numpy(self.task_losses.task_weights())
        names = [task.name for task in self.tasks]
        return dict(zip(names, weights.tolist(), strict=True))

    @property
    def metrics(self) -> list:
        """The metrics in use: those of the tasks, or those given to `compile`."""
        found = super().metrics
        if self.loss is None:
            return found
        return [metric for metric in found if metric is not self.task_metrics]

    def get_config(self) -> dict[str, Any]:
        """Return the config of the functional model, with the tasks."""
        weighting = self.task_losses.task_weighting
        if any(layer is weighting for layer in self.layers):
            weighting = weighting.name  # The graph has its config.
        return {
            **super().get_config(),
            "tasks": [task.get_config() for task in self.tasks] or None,
            "label_average": self.task_losses.label_average,
            "task_weighting": keras.saving.serialize_keras_object(weighting),
        }


class SumsAlone(keras.callbacks.ProgbarLogger):
    """Prints no metrics of single tasks; the history has them."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Print an epoch."""
        own = tuple(f"{task.name}_" for task in self.model.tasks)
        shown = {}
        for name, value in (logs or {}).items():
            plain = name.removeprefix("val_")
            if plain in ("loss", "task_loss") or not plain.startswith(own):
                shown[name] = value
        super().on_epoch_end(epoch, shown)


def _arguments(method, *args, **kwargs):
    """The arguments of a method of `keras.Model` by name, without the model."""
    signature = inspect.signature(getattr(keras.Model, method))
    given = signature.bind(*args, **kwargs).arguments
    more = given.pop("kwargs", {})
    return {name: value for name, value in given.items() if name != "self"} | more
