"""Checks and conversions of labels, sample weights and features."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.models.task import Task
from dselectk_keras.models.task_group import CHUNK, GroupLabels

# With more tasks, the progress bar and the errors do not show each of them.
MANY_TASKS = 8


def to_numpy(values: Any) -> Any:
    """Convert pandas objects and lists, or those in a dict, to NumPy arrays."""
    if isinstance(values, dict):
        return {name: to_numpy(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return np.asarray(values)
    if not hasattr(values, "to_numpy"):
        return values
    array = values.to_numpy()
    if array.dtype != object or not hasattr(values, "isna"):
        return array
    # Columns of several dtypes, or of one with missing values, such as "boolean".
    return values.to_numpy(dtype="float32", na_value=float("nan"))


def in_task_order(tasks: Sequence[Task], values: Any) -> Any:
    """Order the columns of a pandas table by task, if they are named after the tasks.

    Labels or sample weights in any other form are returned unchanged.
    """
    names = [task.name for task in tasks]
    columns = list(getattr(values, "columns", ()))
    return values[names] if columns and set(columns) == set(names) else values


def stack_columns(tasks: Sequence[Task], labels: Any) -> Any:
    """Stack a dict of NumPy columns of one shape and dtype: `(samples, tasks)`.

    With 128 tasks, feeding one array per task takes as long as the step itself. Labels
    in any other form are returned unchanged.
    """
    if not isinstance(labels, dict):
        return labels
    columns = [labels[task.name] for task in tasks]
    if not all(isinstance(column, np.ndarray) for column in columns):
        return labels
    forms = {(column.shape, column.dtype) for column in columns}
    if len(forms) > 1 or columns[0].shape[1:] not in {(), (1,)}:
        return labels
    return np.stack([column.reshape(-1) for column in columns], axis=1)


def check_shapes(tasks: Sequence[Task], y: Any, sample_weight: Any = None) -> None:
    """Raise an error if the labels or sample weights do not fit the tasks."""
    if not tasks:
        raise ValueError(
            "The model has no tasks. Received: tasks=(). Pass `tasks` to "
            "`MultitaskModel`. `keras.models.clone_model` loses them: use "
            "`MultitaskModel.from_config(model.get_config())`."
        )
    _check_shape(tasks, y, "labels")
    if sample_weight is not None:
        _check_shape(tasks, sample_weight, "sample weights")


def _check_shape(tasks, values, what):
    names = [task.name for task in tasks]
    more = ", ..." if len(names) > MANY_TASKS else ""
    shown = ", ".join(names[:MANY_TASKS]) + more
    if isinstance(values, dict):
        unknown = sorted(set(values) - set(names))
        missing = sorted(set(names) - set(values))
        if unknown or missing:
            mend = (
                "For missing labels, pass NaN."
                if what == "labels"
                else "For tasks without weights, pass arrays of ones."
            )
            raise ValueError(
                f"The {what} must have one entry per task: {shown}. "
                f"Received: unknown {unknown}, missing {missing}. {mend}"
            )
        for task in tasks:
            task.check_shape(values[task.name], what)
    elif not hasattr(values, "shape") or (
        tuple(values.shape[1:]) != (len(names),)
        and not (len(names) == 1 and len(values.shape) == 1)
    ):
        got = getattr(values, "shape", type(values).__name__)
        raise ValueError(
            f"The {what} must be a dict by task name ({shown}), or one array of "
            f"shape (batch, {len(names)}), one column per task. Received: {got}."
        )


def for_all_tasks(tasks: Sequence[Task], sample_weight: Any) -> Any:
    """Repeat one weight per example, `(batch,)` or `(batch, 1)`, for several tasks.

    Sample weights in any other form are returned unchanged.
    """
    shape = getattr(sample_weight, "shape", None)
    if len(tasks) < 2 or shape is None or tuple(shape[1:]) not in {(), (1,)}:
        return sample_weight
    weights = to_numpy(sample_weight)
    xp: Any = np if isinstance(weights, np.ndarray) else ops
    return xp.repeat(xp.reshape(weights, (-1, 1)), len(tasks), axis=1)


def check_features(model: keras.Model, x: Any, find_labeled: Any) -> None:
    """Raise an error if features in NumPy arrays make a prediction NaN or infinite.

    A model may replace or mask features that are not finite. So it predicts the
    examples that have some, up to 32 of those in which `find_labeled(rows)` finds a
    label.
    """
    x = keras.tree.map_structure(to_numpy, x)
    arrays = keras.tree.flatten(x)
    if not all(isinstance(array, np.ndarray) and array.ndim for array in arrays):
        return
    found = set()
    for array in arrays:
        if array.dtype.kind == "f":
            for start in range(0, len(array), CHUNK):
                finite = np.isfinite(array[start : start + CHUNK])
                if not finite.all():
                    bad = ~finite.reshape(len(finite), -1).all(axis=1)
                    found.update((start + bad.nonzero()[0]).tolist())
    rows = np.array(sorted(found), int)
    rows = rows[find_labeled(rows)][:32] if len(rows) else rows
    if not len(rows):
        return
    some = keras.tree.map_structure(lambda array: array[rows], x)
    outputs = map(ops.convert_to_numpy, keras.tree.flatten(model(some, training=False)))
    finite = [np.isfinite(one.reshape(len(rows), -1)).all(axis=1) for one in outputs]
    wrong = rows[~np.all(finite, axis=0)]
    if len(wrong):
        raise ValueError(
            "The features of examples with a label must be finite, or the model must "
            f"replace those that are not. Received: NaN or infinity in {len(found)} "
            f"rows, and a prediction that is not finite in row {wrong[0]}. Replace "
            "them, for example with numpy.nan_to_num, or leave these rows out."
        )


def with_rank(values: Any) -> Any:
    """Make columns of labels and sample weights whose rank TensorFlow does not know.

    It forgets the rank if a model gets labels `(batch,)` and then `(batch, 1)`.
    """

    def mend(array):
        unknown = getattr(getattr(array, "shape", None), "rank", 1) is None
        return ops.reshape(array, (-1, 1)) if unknown else array

    return keras.tree.map_structure(mend, values)


def without_stray_nan(x: Any, read: Sequence[GroupLabels]) -> Any:
    """Replace NaN and infinite features by 0 in examples without any label.

    A weight of 0 is not enough: a NaN feature makes the gradient of a kernel NaN.
    """
    if any(labels.present is None for labels in read):
        return x
    present = (ops.any(labels.present, axis=1) for labels in read)
    labeled = functools.reduce(ops.logical_or, present)

    def mend(values):
        dtype = getattr(values, "dtype", None)
        if dtype is None or "float" not in keras.backend.standardize_dtype(dtype):
            return values
        rows = ops.reshape(labeled, (-1, *[1] * (len(values.shape) - 1)))
        return ops.where(ops.logical_or(rows, ops.isfinite(values)), values, 0.0)

    return keras.tree.map_structure(mend, x)
