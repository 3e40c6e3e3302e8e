"""The common type of all data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dselectk_keras.datasets.sampling import SPLITS
from dselectk_keras.utils import shown

_TASK_KINDS = ("regression", "binary", "multiclass")


class Split(NamedTuple):
    """Inputs and labels of one part of a data set.

    A split is a pair, so that `model.fit(*data.train, validation_data=data.validation)`
    works.

    Args:
        x: The inputs, an array (samples, ...) or a mapping from input names to such
            arrays.
        y: The labels, an array (samples, tasks) when every task has a scalar label,
            else a mapping from task names to arrays (samples, ...).
    """

    # `Any`, because users know which of the two a data set has.
    x: Any
    y: Any

    @property
    def num_samples(self) -> int:
        """The number of examples."""
        first = next(iter(self.x.values())) if isinstance(self.x, Mapping) else self.x
        return len(first)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A multi-task data set: three splits and a description of the tasks.

    Args:
        train: The training `Split`.
        validation: The validation `Split`.
        test: The test `Split`.
        task_names: One name per task, in the order of the label columns.
        task_kinds: `"regression"`, `"binary"` or `"multiclass"` for each task.
        groups: One group number per task (tasks of one group are related), or `None` if
            no grouping is known.
        info: Further facts by name, such as the true expert weights of synthetic data.
            Defaults to an empty dict.
        num_classes: The number of classes of each multiclass task, and `None` for other
            tasks; `None` if no task is multiclass.

    Example:
        >>> import numpy as np
        >>> part = Split(np.zeros((5, 3)), np.zeros((5, 2)))
        >>> data = Dataset(part, part, part, ("a", "b"), ("regression", "binary"))
        >>> data.num_tasks
        2
    """

    train: Split
    validation: Split
    test: Split
    task_names: tuple[str, ...]
    task_kinds: tuple[str, ...]
    groups: tuple[int, ...] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    num_classes: tuple[int | None, ...] | None = None

    def __post_init__(self):
        """Check that the fields are consistent."""
        for name in ("task_names", "task_kinds", "groups", "num_classes"):
            value = getattr(self, name)
            is_list = isinstance(value, (Sequence, np.ndarray))
            is_left_out = value is None and name in ("groups", "num_classes")
            if not is_left_out and (not is_list or isinstance(value, str)):
                raise ValueError(
                    f"`{name}` must be a list or tuple with one entry per task. "
                    f"Received: {name}={shown(value)}."
                )
        if not all(isinstance(name, str) for name in self.task_names):
            raise ValueError(
                f"`task_names` must be strings. Received: {shown(self.task_names)}."
            )
        if not self.task_names or len(set(self.task_names)) != self.num_tasks:
            raise ValueError(
                "`task_names` must hold at least one name and none of them twice. "
                f"Received: task_names={shown(self.task_names)}. "
                "Give every task a unique name."
            )
        if len(self.task_kinds) != self.num_tasks or not set(self.task_kinds).issubset(
            _TASK_KINDS
        ):
            raise ValueError(
                f"`task_kinds` must hold one of {_TASK_KINDS} for each of the "
                f"{self.num_tasks} tasks. Received: task_kinds={shown(self.task_kinds)}"
                ". Give one kind per task name, in the same order."
            )
        if self.groups is not None and len(self.groups) != self.num_tasks:
            raise ValueError(
                f"`groups` must hold one group for each of the {self.num_tasks} tasks. "
                f"Received: groups={shown(self.groups)}. "
                "Give one number per task name, or None if no grouping is known."
            )
        if self.num_classes is None:
            object.__setattr__(self, "num_classes", (None,) * self.num_tasks)
        if [kind == "multiclass" for kind in self.task_kinds] != [
            number is not None for number in self.num_classes
        ]:
            raise ValueError(
                "`num_classes` must hold a number for each multiclass task, and None "
                f"for the others. Received: num_classes={shown(self.num_classes)} and "
                f"task_kinds={shown(self.task_kinds)}. Give one entry per task name, "
                "in the same order."
            )
        for name in SPLITS:
            self._check_split(name, getattr(self, name))

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""
        return len(self.task_names)

    def _check_split(self, name, split):
        if not isinstance(split, Split):
            raise ValueError(
                f"`{name}` must be a Split. Received: {type(split).__name__}. "
                "Wrap the two parts: Split(x, y)."
            )
        if isinstance(split.y, Mapping):
            if set(split.y) != set(self.task_names):
                raise ValueError(
                    f"`{name}.y` must have exactly the task names as its keys, "
                    f"{shown(self.task_names)}. Received keys: {tuple(split.y)!r}. "
                    "Rename the keys or `task_names`."
                )
        elif split.y.ndim != 2 or split.y.shape[1] != self.num_tasks:
            raise ValueError(
                f"`{name}.y` must have shape (samples, {self.num_tasks}), one column "
                f"per task. Received shape: {split.y.shape}. "
                "Stack the labels as columns, or pass a mapping by task name."
            )
        lengths = {
            len(array)
            for part in split
            for array in (part.values() if isinstance(part, Mapping) else (part,))
        }
        if len(lengths) != 1:
            raise ValueError(
                f"Every array of `{name}` must hold the same number of samples. "
                f"Received lengths: {sorted(lengths)}. "
                "Cut inputs and labels from the same examples."
            )
