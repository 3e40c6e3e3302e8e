"""The settings of a task."""

import dataclasses
from typing import Any

import keras
import numpy as np

from dselectk_keras._keras import settings
from dselectk_keras.utils import (
    check_choice,
    check_count,
    check_number,
    check_widths,
    get_from,
)

KINDS = {
    # kind: activation of the output, loss, metrics
    "regression": (None, "mean_squared_error", ("mean_absolute_error",)),
    "binary": ("sigmoid", "binary_crossentropy", ("binary_accuracy",)),
    "multiclass": (
        "softmax",
        "sparse_categorical_crossentropy",
        ("sparse_categorical_accuracy",),
    ),
}


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
    loss: str | keras.Loss | None = None
    metrics: tuple | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Check the arguments, and make tuples of the tower and the metrics."""
        if not isinstance(self.name, str) or self.name in {"", "task"}:
            raise ValueError(
                "A task needs a name other than 'task': `task_loss` is the sum over "
                f"all tasks. Received: name={self.name!r}."
            )
        check_choice("kind", self.kind, tuple(KINDS))
        check_number("weight", self.weight, minimum=0)
        if (self.kind == "multiclass") != (self.num_classes is not None):
            raise ValueError(
                "The kind 'multiclass', and no other, needs `num_classes`. "
                f"Received: num_classes={self.num_classes} and kind={self.kind!r} "
                f"for the task {self.name!r}."
            )
        if self.num_classes is not None:
            check_count("num_classes", self.num_classes)
        object.__setattr__(self, "tower", self._checked_tower())
        if self.loss is not None:
            get_from(keras.losses, "loss", self.loss)
        if self.metrics is not None:
            object.__setattr__(self, "metrics", self._checked_metrics())

    def _checked_tower(self):
        """The tower as a tuple of widths, or `"sum"`."""
        if isinstance(self.tower, str):
            if self.tower != "sum":
                raise ValueError(
                    '`tower` must be widths of layers, or "sum". '
                    f"Received: tower={self.tower!r} for the task {self.name!r}."
                )
            if self.kind == "multiclass":
                raise ValueError(
                    "tower='sum' has one output. Received: tower='sum' for the "
                    f"multi-class task {self.name!r}. Use the widths of layers."
                )
            return self.tower
        return tuple(check_widths("tower", self.tower))

    def _checked_metrics(self):
        """The metrics as a tuple."""
        metrics: Any = self.metrics
        if not isinstance(metrics, (list, tuple)):
            metrics = (metrics,)
        for metric in metrics:
            if metric in ("accuracy", "acc"):
                raise ValueError(
                    "Say which accuracy: 'binary_accuracy', "
                    "'sparse_categorical_accuracy' or 'categorical_accuracy'. "
                    f"Received: {metric!r} for the task {self.name!r}."
                )
            # A metric by name is made with the model: here it would use the device.
            if not isinstance(metric, str):
                get_from(keras.metrics, "metrics", metric)
        return tuple(metrics)

    def __repr__(self) -> str:
        """Show the name and the kind."""
        return f"Task({self.name!r}, {self.kind!r})"

    @property
    def num_outputs(self) -> int:
        """Width of the output."""
        return self.num_classes or 1

    @property
    def loss_function(self) -> Any:
        """The Keras loss of the task."""
        return keras.losses.get(self.loss or KINDS[self.kind][1])

    @property
    def output_activation(self) -> str | None:
        """The activation of the output layer."""
        return KINDS[self.kind][0]

    @property
    def metric_names(self) -> tuple:
        """The metrics of the task; by default, those of its kind."""
        return KINDS[self.kind][2] if self.metrics is None else self.metrics

    def check_shape(self, values: Any, what: str = "labels") -> None:
        """Raise an error if labels or sample weights do not fit the task."""
        shape = tuple(getattr(values, "shape", None) or np.shape(values))
        widths = {1, self.num_outputs} if what == "labels" else {1}
        if len(shape) == 1 or (len(shape) == 2 and shape[1] in widths):
            return
        expected = ["(batch,)", *(f"(batch, {width})" for width in sorted(widths))]
        raise ValueError(
            f"The {what} of the task {self.name!r} must have the shape "
            f"{' or '.join(expected)}. Received: {shape}."
        )

    @property
    def group_key(self) -> str:
        """A key that is equal for tasks that can be computed together."""
        loss, *metrics = map(_identity, (self.loss, *self.metric_names))
        return repr((self.kind, self.num_classes, self.tower, loss, metrics))

    def get_config(self) -> dict:
        """The arguments of `__init__`, serialized."""
        return {
            **vars(self),
            "loss": _serialized(self.loss),
            "metrics": self.metrics and [_serialized(each) for each in self.metrics],
        }

    @classmethod
    def from_config(cls, config: dict) -> "Task":
        """Create a task from its config."""
        deserialize = keras.saving.deserialize_keras_object
        objects = {name: deserialize(config[name]) for name in ("loss", "metrics")}
        return cls(**{**config, **objects})


def _serialized(value):
    found = keras.saving.serialize_keras_object(value)
    if known := settings(value):
        found["config"] = {**known, **found["config"]}
    return found


def _identity(value):
    return value if isinstance(value, str) or value is None else id(value)
