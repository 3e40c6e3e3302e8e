"""The settings of a task."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Sequence
from typing import Any

import keras

from dselectk_keras._keras import settings
from dselectk_keras.layers.arguments import task_names
from dselectk_keras.models.kinds import KINDS, Kind
from dselectk_keras.utils import (
    check_choice,
    check_count,
    check_number,
    check_widths,
    get_from,
    shown,
)

AMBIGUOUS = ("accuracy", "acc")
AVERAGES = (None, "sum_over_batch_size", "mean")


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a multi-task model: its name, tower, loss, metrics and weight.

    Args:
        name: Name of the output, and prefix of the task's losses and metrics.
        kind: `"regression"`, `"binary"` or `"multiclass"`.
        num_classes: The number of classes of a multi-class task.
        tower: Widths of the hidden layers between the task's mixture and its
            output layer. `"sum"` is a tower without weights: the output is the sum
            of the mixture's features.
        loss: A Keras loss, or the name of one. `None` is the default for the kind.
        metrics: Names of Keras metrics, or `keras.metrics.Metric` objects. `None` is
            the default for the kind. The name of a function, such as `"mse"`, is fast:
            it is computed for all similar tasks at once. An object, or the name of a
            class such as `"AUC"`, is computed for each task separately.
        weight: Weight of the task's loss in the total loss.

    Example:
        >>> Task("rating"), Task("click", "binary", tower=(16,), weight=2.0)
        (Task('rating', 'regression'), Task('click', 'binary'))
    """

    name: str
    kind: str = "regression"
    num_classes: int | None = None
    tower: tuple[int, ...] | str = ()
    loss: Any = None
    metrics: Any = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Check the arguments, and set those that are `None`."""
        if not isinstance(self.name, str) or self.name in {"", "task"}:
            raise ValueError(
                "A task needs a name other than 'task': `task_loss` is the sum over "
                f"all tasks. Received: name={self.name!r}."
            )
        check_choice("kind", self.kind, tuple(KINDS))
        weight, tower = check_number("weight", self.weight, minimum=0), self.tower
        if self.rules.has_classes != (self.num_classes is not None):
            raise ValueError(
                "The kind 'multiclass', and no other, needs `num_classes`. "
                f"Received: num_classes={self.num_classes} and kind={self.kind!r} "
                f"for the task {self.name!r}."
            )
        if self.num_classes is not None:
            check_count("num_classes", self.num_classes)
        if tower != "sum":
            tower = tuple(check_widths("tower", tower))
        elif self.num_classes is not None:
            raise ValueError(
                "tower='sum' has one output. Received: tower='sum' for the "
                f"multi-class task {self.name!r}. Use the widths of layers."
            )
        vars(self).update(weight=weight, tower=tower)
        self._set_functions()

    def _set_functions(self):
        """Check the loss and the metrics, or set those of the kind."""
        loss, metrics = self.rules.loss, self.rules.metrics
        if self.loss is not None:
            found = _found(keras.losses, keras.Loss, "loss", self.loss)
            loss = self.loss if isinstance(self.loss, str) else found
        if self.metrics is not None:
            several = isinstance(self.metrics, (list, tuple))
            metrics = tuple(self.metrics) if several else (self.metrics,)
        for metric in metrics:
            if metric in AMBIGUOUS:
                raise ValueError(
                    "Say which accuracy: 'binary_accuracy'; for class indices, "
                    "'sparse_categorical_accuracy' or 'sparse_top_k_categorical_"
                    "accuracy'; for one number per class, the same without 'sparse'. "
                    f"Received: {metric!r} for the task {self.name!r}."
                )
            # A metric by name is made with the model: here it would use the device.
            if not isinstance(metric, str):
                _found(keras.metrics, keras.Metric, "metrics", metric)
        for each in (loss, *metrics):
            config = {} if isinstance(each, str) else settings(each)
            from_logits = config.get("from_logits") and self.rules.activation
            if from_logits or config.get("reduction") not in AVERAGES:
                raise ValueError(
                    "The outputs of tasks are probabilities or numbers, not logits, "
                    "and the model averages the losses. Received for the task "
                    f"{self.name!r}: {type(each).__name__} with {config}. Leave "
                    "`from_logits` and `reduction` out."
                )
        # The class is frozen.
        vars(self).update(loss=loss, metrics=metrics)
        if not self.label_widths:
            raise ValueError(
                "The loss and the metrics of a task must take the same labels: for "
                "class indices, those of Keras with 'sparse' in the name; for one "
                "number per class, those without it; and for tasks that are not "
                "'multiclass', none with 'categorical' in the name. Received for the "
                f"task {self.name!r}, {self.kind}: {(loss, *metrics)}."
            )

    def __repr__(self) -> str:
        """Show the name and the kind."""
        return f"Task({self.name!r}, {self.kind!r})"

    @property
    def num_outputs(self) -> int:
        """Width of the output."""
        return self.num_classes or 1

    @functools.cached_property
    def rules(self) -> Kind:
        """What the kind of the task says of its output, labels, loss and metrics."""
        return KINDS[self.kind](self.num_outputs)

    @functools.cached_property
    def label_widths(self) -> set[int]:
        """The widths that labels may have."""
        functions = self.loss, *self.metrics
        return set.intersection(*map(self.rules.widths, functions))

    def get_config(self) -> dict:
        """The arguments of `__init__`, serialized."""
        functions = self.loss, *self.metrics
        loss, *metrics = map(keras.saving.serialize_keras_object, functions)
        for each, config in zip(functions, (loss, *metrics), strict=True):
            # Settings that the class leaves out.
            if not isinstance(each, str) and (known := settings(each)):
                config["config"] = {**known, **config["config"]}
        names = (field.name for field in dataclasses.fields(self))
        config = {name: getattr(self, name) for name in names}
        return {**config, "loss": loss, "metrics": metrics}

    @classmethod
    def from_config(cls, config: dict) -> "Task":
        """Create a task from its config."""
        deserialize = keras.saving.deserialize_keras_object
        names = {"loss", "metrics"} & {*config}
        objects = {name: deserialize(config[name]) for name in names}
        return cls(**{**config, **objects})


def as_tasks(tasks: Any) -> tuple[Task, ...]:
    """List tasks: a number of them, or a list of `Task`, of names, or of configs.

    Tasks that have only a name are regressions.
    """
    if not isinstance(tasks, (list, tuple)):
        tasks = task_names(tasks)
    given = [Task(task) if isinstance(task, str) else task for task in tasks]
    found = tuple(Task.from_config(t) if isinstance(t, dict) else t for t in given)
    if not all(isinstance(task, Task) for task in found):
        raise ValueError(
            "`tasks` must be a list of `Task` objects or names, or a number. "
            f"Received: {tasks}."
        )
    task_names(found)  # They must be unique.
    return found


def group_tasks(tasks: Sequence[Task]) -> dict[str, list[int]]:
    """Group tasks that differ only in the name and the weight.

    Returns:
        The indices of the tasks of each group, by a part of the names of its layers.
    """
    members = {}
    for index, task in enumerate(tasks):
        alike = task.kind, task.num_classes, task.tower, task.loss, task.metrics
        members.setdefault(alike, []).append(index)
    groups = {}
    for number, indices in enumerate(members.values()):
        names = [tasks[index].name for index in indices]
        text = "_".join(names if len(names) <= 3 else (names[0], "to", names[-1]))
        # TensorFlow wants plain letters.
        label = re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_")
        label = label if label and label not in groups else str(number)
        # A task may have a number for a name.
        groups[f"group_{number}" if label in groups else label] = indices
    return groups


def _found(module, base, name, value):
    """Find a loss or a metric; an error names the argument."""
    found = get_from(module, name, value)
    if inspect.isclass(value) and not isinstance(found, base):
        raise ValueError(
            f"`{name}` must be known to `{module.__name__}`. "
            f"Received: {name}={shown(value)}, a class that is no {base.__name__}."
        )
    return found
