"""Checks of labels, sample weights and features."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.models.task import Task

CHUNK = 2**16  # Number of rows to check at once, to save memory.


def check_labels(model: Any, x: Any, y: Any, sample_weight: Any = None) -> None:
    """Raise an error if arrays cannot be right for the tasks of a model.

    Labels must be possible, such as class 2 of 3, and sample weights finite. Features
    must be finite too, or the model must replace those that are not: a NaN would make
    all weights NaN. In a training step such values make the loss NaN, without an error.

    `fit` and `evaluate` of a `MultitaskModel` check arrays. Check those of your own
    loops, and what you put in a `tf.data.Dataset`.

    Args:
        model: A `MultitaskModel`.
        x: The inputs, as for `fit`.
        y: The labels: a dict by task name, or one array with a column per task.
        sample_weight: Sample weights in the form of `y`, or one array `(samples,)`.

    Example:
        >>> model = build_multitask_model(3, [Task("click", "binary")])
        >>> check_labels(model, np.ones((2, 3)), np.array([0.0, np.nan]))
        >>> try:
        ...     check_labels(model, np.ones((2, 3)), np.array([0.0, 2.0]))
        ... except ValueError as error:
        ...     print(str(error)[:55])
        The labels of the task 'click' must be between 0 and 1.
    """
    names = [task.name for task in model.tasks]
    for table in (y, sample_weight):
        columns = list(getattr(table, "columns", names))
        if columns != names and set(columns) == set(names):
            raise ValueError(
                "The columns of a table must be in the order of the tasks. Received: "
                f"{columns} for the tasks {names}. Pass `table[names]`."
            )
    y, sample_weight = check_shapes(
        model.tasks, _as_arrays(y), _as_arrays(sample_weight)
    )
    for start in range(0, len(keras.tree.flatten(y)[0]), CHUNK):
        rows = slice(start, start + CHUNK)
        part: Any = keras.tree.map_structure(
            lambda array, r=rows: None if array is None else array[r],
            (y, sample_weight),
        )
        for group in model.task_metrics.groups:
            labels, weights = part
            _check_group(group, labels, weights, start)
    _check_features(model, x)


def _check_group(group, y, sample_weight, start):
    """Check the labels of a group of tasks in the rows from `start` on."""
    values, weights, present, possible = group.read(y, sample_weight, xp=np)
    for row, t in np.argwhere(~np.isfinite(weights)).tolist():
        raise ValueError(
            f"The sample weights of the task {group.tasks[t].name!r} must be finite. "
            f"Received: {weights[row, t]:g} in row {start + row}. To leave an example "
            "out, pass 0."
        )
    wrong = ~np.isfinite(values).all(axis=-1)
    if possible is not None:
        wrong |= ~possible
    for row, t in np.argwhere(present & wrong).tolist():
        expected = "between 0 and 1" if group.wants_probabilities else "finite"
        if group.are_classes(values):
            expected = f"class indices from 0 to {group.tasks[t].num_outputs - 1}"
        raise ValueError(
            f"The labels of the task {group.tasks[t].name!r} must be {expected}. "
            f"Received: {', '.join(f'{value:g}' for value in values[row, t])} in row "
            f"{start + row}. For missing labels, pass NaN or a sample weight of 0."
        )


def _check_features(model, x):
    """Check that features that are not finite do not show in the predictions.

    A model may replace or mask them. So it predicts up to 32 of the examples.
    """
    keras.tree.map_structure(_check_strings, x)
    x = keras.tree.map_structure(_as_numpy, x)
    bad: Any = False
    for array in keras.tree.flatten(x):
        if array.dtype.kind == "f":
            bad = bad | ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    rows = np.flatnonzero(bad)
    if not len(rows):
        return
    some = keras.tree.map_structure(lambda array: array[rows[:32]], x)
    for output in keras.tree.flatten(model(some, training=False)):
        values = ops.convert_to_numpy(output)
        for row in np.argwhere(~np.isfinite(values))[:1, 0]:
            raise ValueError(
                "The features must be finite, or the model must replace those that are "
                f"not. Received: NaN or infinity in {len(rows)} rows, and a prediction "
                f"that is not finite in row {rows[row]}. Replace them, for example "
                "with numpy.nan_to_num, or leave these rows out."
            )


def _check_strings(x):
    """Raise an error for strings that Keras does not take as inputs."""
    array = _as_numpy(x)
    is_objects = keras.backend.backend() == "tensorflow" and array is x
    if array.dtype.kind in ("US" if is_objects else "USO"):
        raise ValueError(
            "Strings must be in a NumPy array of objects, on TensorFlow, and looked up "
            f"in the model. Received: an input of dtype {getattr(x, 'dtype', 'object')}"
            ". Pass `column.to_numpy(object)`, or look the strings up before the "
            "model, for example with `pandas.factorize`."
        )


def check_shapes(tasks: Sequence[Task], y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Raise an error if the labels or sample weights do not fit the tasks.

    Returns:
        The labels and the sample weights, with one column or entry per task.
    """
    if not tasks:
        raise ValueError(
            "The model has no tasks. Received: tasks=(). Pass `tasks` to "
            "`MultitaskModel`. `keras.models.clone_model` loses them: use "
            "`MultitaskModel.from_config(model.get_config())`."
        )
    y, sample_weight = keras.tree.map_structure(_with_rank, (y, sample_weight))
    _check_shape(tasks, y, "labels")
    if sample_weight is None:
        return y, None
    shape = tuple(getattr(sample_weight, "shape", (None,) * 3))
    if len(tasks) > 1 and shape[1:] in {(), (1,)}:
        xp: Any = np if isinstance(sample_weight, np.ndarray) else ops
        column = xp.reshape(sample_weight, (-1, 1))
        sample_weight = xp.repeat(column, len(tasks), axis=1)
    _check_shape(tasks, sample_weight, "sample weights")
    return y, sample_weight


def _check_shape(tasks, values, what):
    names = [task.name for task in tasks]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
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
        return
    shape = getattr(values, "shape", None)
    one = len(names) == 1 and shape is not None and len(shape) == 1
    if not one and (shape is None or tuple(shape[1:]) != (len(names),)):
        got = type(values).__name__ if shape is None else tuple(shape)
        raise ValueError(
            f"The {what} must be a dict by task name ({shown}), or one array of "
            f"shape (batch, {len(names)}), one column per task. Received: {got}."
        )


def _as_arrays(values):
    """Convert tables, tensors and lists, or those in a dict, to NumPy arrays."""
    if isinstance(values, dict):
        return {name: _as_numpy(value) for name, value in values.items()}
    return _as_numpy(values)


def _as_numpy(values):
    if values is None or isinstance(values, np.ndarray):
        return values
    is_tensor = ops.is_tensor(values)
    return ops.convert_to_numpy(values) if is_tensor else np.asarray(values)


def _with_rank(values):
    """Make a column of labels or sample weights whose rank TensorFlow does not know.

    It forgets the rank if a model gets labels `(batch,)` and then `(batch, 1)`.
    """
    unknown = getattr(getattr(values, "shape", None), "rank", 1) is None
    return ops.reshape(values, (-1, 1)) if unknown else values
