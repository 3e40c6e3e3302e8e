"""What a task is."""

import dataclasses

import keras
import numpy as np

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
        name: Name of the output, and prefix of what is reported about the task.
        kind: `"regression"`, `"binary"` or `"multiclass"`.
        num_classes: The number of classes of a multi-class task.
        tower: Widths of the hidden layers between the task's mixture and its
            output layer. `"sum"` is a tower without weights: the output is the sum
            of the mixture's features.
        loss: A Keras loss, or the name of one. `None` is the one for the kind.
        metrics: Names of Keras metrics, or `keras.metrics.Metric` objects. A name
            of a function of labels and predictions, such as `"mse"`, is computed
            for all like tasks together; an object, or the name of a class such as
            `"AUC"`, costs a small graph of its own. `None` is one for the kind.
        weight: Weight of the task's loss in the sum.

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
        """Refuse what cannot be a task."""
        if not isinstance(self.name, str) or self.name in {"", "task"}:
            raise ValueError(
                "A task needs a name other than 'task', which is what the sum over "
                f"tasks is reported under. Received: name={self.name!r}."
            )
        if self.kind not in KINDS:
            raise ValueError(
                f"The kind of a task is one of {', '.join(KINDS)}. "
                f"Received: kind={self.kind!r} for the task {self.name!r}."
            )
        if (self.kind == "multiclass") != (self.num_classes is not None):
            raise ValueError(
                "`num_classes` goes with the kind 'multiclass', and only with it. "
                f"Received: num_classes={self.num_classes} and kind={self.kind!r} "
                f"for the task {self.name!r}."
            )
        if self.tower == "sum":
            if self.kind == "multiclass":
                raise ValueError(
                    "A tower that sums has one output. Received: tower='sum' for the "
                    f"multi-class task {self.name!r}."
                )
        elif isinstance(self.tower, str):
            raise ValueError(
                '`tower` must be widths of layers, or "sum". '
                f"Received: tower={self.tower!r} for the task {self.name!r}."
            )
        else:
            tower = (self.tower,) if isinstance(self.tower, int) else self.tower
            object.__setattr__(self, "tower", tuple(tower))
        if self.metrics is not None:
            metrics = self.metrics
            single = isinstance(metrics, (str, keras.Metric))
            object.__setattr__(
                self, "metrics", (metrics,) if single else tuple(metrics)
            )
            vague = [name for name in self.metrics if name in ("accuracy", "acc")]
            if vague:
                raise ValueError(
                    "Say which accuracy: 'binary_accuracy', "
                    "'sparse_categorical_accuracy' or 'categorical_accuracy'. "
                    f"Received: {vague[0]!r} for the task {self.name!r}."
                )

    def __repr__(self) -> str:
        """The task by name and kind."""
        return f"Task({self.name!r}, {self.kind!r})"

    @property
    def num_outputs(self) -> int:
        """Width of the output."""
        return self.num_classes or 1

    @property
    def loss_function(self):
        """The Keras loss of the task."""
        return keras.losses.get(self.loss or KINDS[self.kind][1])

    @property
    def output_activation(self) -> str | None:
        """The activation of the output layer."""
        return KINDS[self.kind][0]

    @property
    def metric_names(self) -> tuple:
        """The metrics of the task, those of its kind if it has none of its own."""
        return KINDS[self.kind][2] if self.metrics is None else self.metrics

    def check_shape(self, values, what: str = "labels") -> None:
        """Refuse labels, or sample weights, that do not fit the task.

        Args:
            values: An array or tensor.
            what: `"labels"` or `"sample weights"`.
        """
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
        """Equal for tasks that can be computed together."""
        return repr(
            (
                self.kind,
                self.num_classes,
                self.tower,
                _identity(self.loss),
                [_identity(metric) for metric in self.metric_names],
            )
        )

    def get_config(self) -> dict:
        """The arguments of `__init__`, serialized."""
        return {
            **{
                field.name: getattr(self, field.name)
                for field in dataclasses.fields(self)
            },
            "loss": keras.saving.serialize_keras_object(self.loss),
            "metrics": keras.saving.serialize_keras_object(self.metrics),
        }

    @classmethod
    def from_config(cls, config: dict) -> "Task":
        """The task of a config."""
        return cls(
            **{
                **config,
                "loss": keras.saving.deserialize_keras_object(config["loss"]),
                "metrics": keras.saving.deserialize_keras_object(config["metrics"]),
            }
        )


def _identity(value):
    return value if isinstance(value, str) or value is None else id(value)
