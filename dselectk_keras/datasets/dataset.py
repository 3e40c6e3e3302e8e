"""The common type of all data sets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras.datasets.sampling import SPLITS
from dselectk_keras.utils import check_type, shown

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
        return len(keras.tree.flatten(self.x)[0])


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
        for name in ("task_names", "task_kinds", "groups", "num_classes"):
            value = getattr(self, name)
            if value is None and name in ("groups", "num_classes"):
                continue
            is_list = isinstance(value, (list, tuple, np.ndarray))
            count = len(value) if is_list else 0
            if not count or count != self.num_tasks:
                raise ValueError(
                    f"`{name}` must be a list or tuple with one entry for each task, "
                    f"as `task_names`. Received: {name}={shown(value)}."
                )
        names = {name for name in self.task_names if isinstance(name, str)}
        if len(names) < self.num_tasks:
            raise ValueError(
                "`task_names` must be strings, none of them twice. "
                f"Received: {shown(self.task_names)}."
            )
        if self.num_classes is None:
            object.__setattr__(self, "num_classes", (None,) * self.num_tasks)
        has_classes = [number is not None for number in self.num_classes]
        if not {*self.task_kinds} <= {*_TASK_KINDS} or has_classes != [
            kind == "multiclass" for kind in self.task_kinds
        ]:
            raise ValueError(
                f"`task_kinds` must be some of {_TASK_KINDS}, and `num_classes` must "
                "hold a number for each multiclass task, and None for the others. "
                f"Received: num_classes={shown(self.num_classes)} and "
                f"task_kinds={shown(self.task_kinds)}."
            )
        for name in SPLITS:
            self._check_split(name, getattr(self, name))

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""
        return len(self.task_names)

    def _check_split(self, name, split):
        check_type(name, split, Split, "a `Split` of inputs and labels")
        arrays, y = keras.tree.flatten(tuple(split)), split.y
        is_named = isinstance(y, Mapping)
        fits = (
            {*y} == {*self.task_names} if is_named else y.shape[1:] == (self.num_tasks,)
        )
        if not fits or len({len(array) for array in arrays}) != 1:
            received = [*y] if is_named else f"`y` of shape {y.shape}"
            raise ValueError(
                f"`{name}` must have arrays of the same number of samples, and labels "
                f"(samples, {self.num_tasks}), or a mapping of labels by task name. "
                f"Received: {received}, and arrays of the lengths "
                f"{[len(array) for array in arrays]}."
            )
