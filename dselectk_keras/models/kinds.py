"""The kinds of tasks: the output, the labels, the loss and the metrics of each."""

from typing import Any


class Kind:
    """Numbers; other kinds say what differs. A kind of your own goes into `KINDS`."""

    activation: Any = None
    loss = "mean_squared_error"
    metrics: tuple[str, ...] = ("mean_absolute_error",)
    has_classes = False
    negative_is_missing = False
    # The end of an error about labels of another width.
    mend = "A task has one output: make several tasks of several numbers."
    # The factor of the loss in `Uncertainty`.
    factor = 0.5

    def __init__(self, num_outputs: int = 1):
        self.num_outputs = num_outputs

    def widths(self, function: Any) -> set[int]:
        """The widths of the labels that a loss or metric takes."""
        return set() if "categorical" in _keras_name(function) else {1}

    def are_classes(self, width: int) -> bool:
        """Whether labels of a width are class indices."""
        return False

    def limits(self, width: int) -> tuple[int, int] | None:
        """The least and the largest label of a width, or `None` for all numbers."""
        return None


class Binary(Kind):
    """Labels 0 and 1, or a probability."""

    activation = "sigmoid"
    loss = "binary_crossentropy"
    metrics = ("binary_accuracy",)
    factor = 1.0

    def limits(self, width: int) -> tuple[int, int]:
        return 0, 1


class Classes(Kind):
    """Class indices, or one probability per class."""

    activation = "softmax"
    loss = "sparse_categorical_crossentropy"
    metrics = ("sparse_categorical_accuracy",)
    has_classes = True
    negative_is_missing = True
    mend = (
        "Class indices need a loss and metrics with 'sparse' in the name, the default; "
        "one number per class needs others, such as loss='categorical_crossentropy' "
        "and metrics='categorical_accuracy'."
    )
    factor = 1.0

    def widths(self, function: Any) -> set[int]:
        """1 for class indices, and the number of classes for one number per class."""
        name = _keras_name(function)
        if not name or "iou" in name:
            return {1, self.num_outputs}
        return {1} if "sparse" in name else {self.num_outputs}

    def are_classes(self, width: int) -> bool:
        return width == 1

    def limits(self, width: int) -> tuple[int, int]:
        return 0, self.num_outputs - 1 if width == 1 else 1


KINDS = {"regression": Kind, "binary": Binary, "multiclass": Classes}


def _keras_name(function: Any) -> str:
    """The name of a function or class of Keras, in lower case; empty for your own."""
    if isinstance(function, str):
        return function.lower()
    known = function if hasattr(function, "__name__") else type(function)
    name = known.__name__.lower()
    is_own = known.__module__.partition(".")[0] != "keras" or "wrapper" in name
    return "" if is_own else name
