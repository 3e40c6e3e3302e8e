"""The targets of a table, found in the rows to train on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dselectk_keras.models.columns import inferred
from dselectk_keras.models.task import Task
from dselectk_keras.tables.columns import import_pandas, plain_name, values_kind
from dselectk_keras.utils import shown

MOST_CLASSES = 100
# The largest number whose square float32 holds, and the smallest spread.
LARGEST, SPREAD = 1e18, 1e-5


@dataclasses.dataclass(frozen=True)
class Target:
    """A target of a table: what its labels mean.

    Args:
        name: The name of its column.
        kind: `"number"`; `"binary"`, with two values; or `"classes"`, with more texts.
        classes: The values, sorted. Of a binary target, the second is 1.
        mean: The mean of numbers in the rows to train on.
        deviation: Their standard deviation.
    """

    name: str
    kind: str
    classes: tuple = ()
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def task(self) -> Task:
        """The task of a model. Numbers count by the part of their variance left."""
        name = plain_name(self.name)
        if self.kind == "binary":
            return Task(name, "binary", metrics=("AUC",))
        if self.kind == "classes":
            return Task(name, "multiclass", len(self.classes))
        return Task(name, weight=1 / self.deviation**2)

    def encode(self, column: Any) -> np.ndarray:
        """Labels as numbers in float32: numbers of classes, or the numbers themselves.

        A label is NaN if it is missing, or a value that the rows to train on do not
        have, with a line that says so.
        """
        column = _inferred(column)
        if self.kind == "number":
            return _as_float32(self.name, _as_float64(self.name, column))
        numbers = {value: float(i) for i, value in enumerate(self.classes)}
        found = column.astype(object).map(numbers).astype("float32")
        new = column[found.isna() & column.notna()]
        if len(new):
            print(  # noqa: T201
                f"{self.name}: {len(new)} labels, such as {new.tolist()[0]!r}, are not "
                "in the rows to train on, and count as missing."
            )
        return found.to_numpy("float32", na_value=np.nan)

    def __str__(self):
        """What the labels mean, in a line."""
        if self.kind == "binary":
            low, high = self.classes
            return f"{self.name}: 1 is {high!r}, and 0 is {low!r}."
        if self.kind == "classes":
            return f"{self.name}: {len(self.classes)} classes."
        return f"{self.name}: numbers of mean {self.mean:g}."


def find_targets(frame: Any, names: Sequence[str]) -> list[Target]:
    """Find what the labels of each target mean, from the rows to train on.

    A target with two values is binary. Numbers stay numbers; other texts are classes,
    and so are numbers whose dtype is `category`.

    Args:
        frame: The rows to train on. Missing labels are NaN or None.
        names: The names of the columns that are targets.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"kind": ["a", "b", None], "price": [1.0, 2.0, 3.0]})
        >>> [target.kind for target in find_targets(frame, ["kind", "price"])]
        ['binary', 'number']
    """
    names = [*dict.fromkeys(names or ())]
    unknown = [name for name in names if name not in frame.columns]
    if unknown or not names:
        raise ValueError(
            f"Targets must name columns of the table: {', '.join(map(str, frame))}. "
            f"Received: {', '.join(map(str, unknown)) or 'none'}."
        )
    return [_target(name, frame[name]) for name in names]


def _inferred(column):
    """A column with the dtype of its values: decimals as floating-point numbers."""
    column = inferred(column)
    infer = import_pandas().api.types.infer_dtype
    if column.dtype.kind == "O" and infer(column, skipna=True) == "decimal":
        return column.astype(object).where(column.notna(), np.nan).astype("float64")
    return column


def _target(name, column):
    known = _inferred(column).dropna()
    values = known.unique().tolist()
    kind = values_kind(name, known) if len(values) else "constant"
    is_category = kind == "number" and str(column.dtype) == "category"
    is_number = kind == "number" and not is_category and known.dtype.kind != "m"
    is_class = kind in {"string", "boolean"} or is_category
    most = len(values) if is_number else MOST_CLASSES
    if len(values) < 2 or len(values) > most or not (is_number or is_class):
        raise ValueError(
            f"The target {name!r} must have two values or more in the rows to train "
            f"on: numbers, or up to {MOST_CLASSES} texts. Received: "
            f"{len(values)}{f', such as {values[0]!r},' if values else ''} in "
            f"{len(column)} rows."
        )
    if len(values) == 2 or is_class:
        kind = "binary" if len(values) == 2 else "classes"
        return Target(name, kind, tuple(sorted(values)))
    numbers = _as_float64(name, known)
    _as_float32(name, numbers)
    mean, deviation = float(numbers.mean()), float(numbers.std())
    if deviation < max(SPREAD * abs(mean), 1 / LARGEST):
        how = "Subtract the mean" if abs(mean) > deviation else "Multiply by a number"
        raise ValueError(
            f"The target {name!r} has numbers that float32 does not tell apart: their "
            f"mean is {mean:g}, and their standard deviation {deviation:g}. {how}."
        )
    return Target(name, "number", mean=mean, deviation=deviation)


def _as_float64(name, column):
    known = column.dropna()
    if len(known) and values_kind(name, known) not in {"number", "boolean"}:
        raise ValueError(
            f"The target {name!r} must have numbers, as in the rows to train on. "
            f"Received: {shown(known.iloc[0])}."
        )
    return column.astype("float64").to_numpy("float64", na_value=np.nan)


def _as_float32(name, values):
    """Labels in float32, or an error if they do not fit into it."""
    if np.isinf(values).any() or (np.abs(values) > LARGEST).any():
        raise ValueError(
            f"The target {name!r} must have finite numbers up to {LARGEST:g}, whose "
            f"squares float32 holds. Received: "
            f"{values[np.nanargmax(np.abs(values))]:g}. Divide them by a number, or "
            "remove them."
        )
    return values.astype("float32")
