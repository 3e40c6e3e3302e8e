"""Checks of labels, sample weights and features."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.models.columns import as_dense, as_inputs, as_labels, as_numpy
from dselectk_keras.models.task import Task
from dselectk_keras.utils import check_flags

# Numbers that are checked together: they stay in the cache.
BLOCK = 2**17


def check_labels(
    model: Any, x: Any, y: Any, sample_weight: Any = None, training: bool = False
) -> None:
    """Raise an error if arrays cannot be right for the tasks of a model.

    Labels must be possible, such as class 2 of 3, and sample weights finite, and 0 or
    more. Features must be finite too, or the model must replace those that are not: a
    NaN would make all weights NaN. In a training step such values make the loss NaN,
    without an error. Infinity must be replaced as NaN is: behind `tanh`, predictions
    are finite, but gradients are not.

    `fit` and `evaluate` of a `MultitaskModel` check arrays. Check those of your own
    loops, and what you put in a `tf.data.Dataset`.

    Args:
        model: A `MultitaskModel`.
        x: The inputs, as for `fit`.
        y: The labels: a dict by task name, or one array with a column per task.
        sample_weight: Sample weights in the form of `y`, or one array `(samples,)`.
        training: Whether each task needs a label, since it will be trained. Tasks whose
            labels are all equal are named in a warning.

    Example:
        >>> model = build_multitask_model(3, [Task("click", "binary")])
        >>> check_labels(model, np.ones((2, 3)), np.array([0.0, np.nan]))
        >>> try:
        ...     check_labels(model, np.ones((2, 3)), np.array([0.0, 2.0]))
        ... except ValueError as error:
        ...     print(str(error)[:55])
        The labels of the task 'click' must be between 0 and 1.
    """
    check_flags(training=training)
    check_has_tasks(model)
    y, sample_weight = as_labels(model.tasks, y, sample_weight)
    y, sample_weight = keras.tree.map_structure(as_numpy, (y, sample_weight))
    check_shapes(model.tasks, y, sample_weight)
    _check_rows(x, y, sample_weight)
    for reader in model.readers:
        _check_group(reader, y, sample_weight)
    if training:
        _check_variation(model.readers, y, sample_weight)
    _check_features(model, as_inputs(model, x))


def check_has_tasks(model: Any) -> None:
    """Raise an error for a model that has lost its tasks."""
    if not getattr(model, "tasks", ()):
        raise ValueError(
            f"`model` has no tasks. Received: {model!r}. `keras.models.clone_model` "
            "loses them: use `MultitaskModel.from_config(model.get_config())`."
        )


def _check_rows(x, y, sample_weight):
    """Check that all arrays have the same number of rows, and not none."""
    parts = {"inputs": x, "labels": y, "sample weights": sample_weight}
    sizes = {
        what: {(*_shape(array), "no")[0] for array in keras.tree.flatten(part)}
        for what, part in parts.items()
        if part is not None or what == "inputs"
    }
    rows = set().union(*sizes.values())
    if len(rows) > 1 or 0 in rows or not all(sizes.values()):
        found = [
            f"{what} of {' and '.join(map(str, own)) or 'no'}"
            for what, own in sizes.items()
        ]
        raise ValueError(
            "Inputs, labels and sample weights must have one row for each example, and "
            f"one example or more. Received: {', '.join(found)} rows."
        )


def _blocks(*values):
    """Cut arrays, or those in dicts, into blocks of rows that stay in the cache."""
    arrays = [each for each in keras.tree.flatten(values) if each is not None]
    length = len(arrays[0])
    rows = max(1, BLOCK * length // sum(array.size for array in arrays))

    def cut(first):
        return keras.tree.map_structure(
            lambda array: None if array is None else array[first : first + rows], values
        )

    return ((first, *cut(first)) for first in range(0, length, rows))


def _check_group(reader, y, sample_weight):
    """Check the labels and the weights of a group of tasks."""
    for first, *part in _blocks(y, sample_weight):
        labels = reader.stack(part[0], np)
        weights: Any = None if part[1] is None else reader.stack(part[1], np)
        # A comparison with NaN is false.
        fits = weights is None or (weights.min() >= 0 and weights.max() < np.inf)
        if fits and reader.none_impossible(labels):
            continue
        labels, weights, _, possible = reader.labeled(*part, np)
        for row, t in np.argwhere(~((weights >= 0) & (weights < np.inf))).tolist():
            raise ValueError(
                f"The sample weights of the task {reader.tasks[t].name!r} must be "
                "finite, and 0 or more. "
                f"Received: {weights[row, t]:g} in row {first + row}. To leave "
                "an example out, pass 0."
            )
        wrong = ~np.isfinite(labels).all(axis=-1)
        if possible is not None:
            wrong |= ~possible
        for row, t in np.argwhere((weights != 0) & wrong).tolist():
            expected, limits = "finite", reader.limits(labels)
            if limits is not None:
                form = "class indices from {} to {}"
                form = form if reader.are_classes(labels) else "between {} and {}"
                expected = form.format(*limits)
            found = ", ".join(f"{value:g}" for value in labels[row, t])
            raise ValueError(
                f"The labels of the task {reader.tasks[t].name!r} must be {expected}. "
                f"Received: {found} in row {first + row}. For missing labels, pass NaN "
                "or a sample weight of 0."
            )


def _check_variation(readers, y, sample_weight):
    """Check that each task has a label, and warn of those that have one value alone."""
    constant = []
    for reader in readers:
        # The tasks whose labels are equal so far: a few, after the first block.
        rest: Any = np.arange(len(reader.tasks))
        labeled: Any = False
        least: Any = np.nan
        most: Any = np.nan
        for _, *part in _blocks(y, sample_weight):
            labels, weights, missing, _ = reader.part(rest).labeled(*part, np)
            seen = np.where((weights != 0)[..., None], labels, np.nan)
            labeled = labeled | ~missing.all(axis=0)
            least = np.fmin(least, np.fmin.reduce(seen, axis=0))
            most = np.fmax(most, np.fmax.reduce(seen, axis=0))
            equal = ~(least < most).any(axis=-1)
            rest, labeled, least, most = (
                x[equal] for x in (rest, labeled, least, most)
            )
            if not len(rest):
                break
        for t in rest[~labeled]:
            raise ValueError(
                f"The task {reader.tasks[t].name!r} has no label to train on. "
                f"Received: {len(keras.tree.flatten(y)[0])} missing labels. Leave the "
                "task out of the model; or, to train only the others, pass any labels "
                "with a sample weight of 0."
            )
        constant += [
            f"{reader.tasks[t].name!r} ({', '.join(f'{value:g}' for value in values)})"
            for t, values in zip(rest, least, strict=True)
            if np.isfinite(values).all()
        ]
    if constant:
        more = f" and {len(constant) - 8} more" * (len(constant) > 8)
        warnings.warn(
            f"All labels are equal in the tasks {', '.join(constant[:8])}{more}. They "
            "only learn this value. Check the columns, or leave the tasks out.",
            stacklevel=6,
        )


def _check_features(model, x):
    """Check that features that are not finite do not show in up to 32 predictions."""
    keras.tree.map_structure(_check_strings, x)
    x = keras.tree.map_structure(as_numpy, x)
    bad: Any = False
    for array in keras.tree.flatten(x):
        if array.dtype.kind == "f" and not _is_finite(array):
            bad = bad | _bad_rows(array)
    rows = np.flatnonzero(bad)
    if not len(rows):
        return
    some = as_dense(keras.tree.map_structure(lambda array: array[rows[:32]], x))
    missing = keras.tree.map_structure(_infinite_as_nan, some)
    outputs = (keras.tree.flatten(model(x, training=False)) for x in (some, missing))
    for pair in zip(*outputs, strict=True):
        output, as_missing = map(ops.convert_to_numpy, pair)
        # A saturating activation hides infinity, but not NaN.
        right = np.isfinite(output) & np.isclose(output, as_missing)
        for row in np.argwhere(~right)[:1, 0]:
            raise ValueError(
                "The features must be finite, or the model must replace those that are "
                f"not. Received: NaN or infinity in {len(rows)} rows, which shows in "
                f"the prediction of row {rows[row]}. Replace them, for example "
                "with numpy.nan_to_num, or leave these rows out."
            )


def _is_finite(array):
    """Check whether an array or sparse matrix has only finite numbers."""
    if not isinstance(array, np.ndarray):
        array = array.data
    # The least and the largest number are NaN if any is.
    return not array.size or all(
        np.isfinite(part.min()) and np.isfinite(part.max())
        for _, part in _blocks(array)
    )


def _infinite_as_nan(array):
    """Replace infinity by NaN in an array of floating-point numbers."""
    if array.dtype.kind != "f":
        return array
    return np.where(np.isinf(array), np.array(np.nan, array.dtype), array)


def _bad_rows(array):
    """Find the rows of an array or sparse matrix that have NaN or infinity."""
    if isinstance(array, np.ndarray):
        return ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    rows = array.tocoo().row[~np.isfinite(array.tocoo().data)]
    return np.isin(np.arange(array.shape[0]), rows)


def _check_strings(x):
    """Raise an error for strings that Keras does not take as inputs."""
    array = as_numpy(x)
    takes_objects = keras.backend.backend() == "tensorflow"
    takes_objects = takes_objects and (array is x or ops.is_tensor(x))
    if array.dtype.kind in ("US" if takes_objects else "USO"):
        raise ValueError(
            "Strings must be in a NumPy array of objects, on TensorFlow, and looked up "
            f"in the model. Received: an input {array.dtype}. Pass `column.to_numpy("
            "object)`, or look strings up before, as with `pandas.factorize`."
        )


def check_shapes(tasks: Sequence[Task], y: Any, sample_weight: Any = None) -> None:
    """Raise an error if labels or sample weights do not fit the tasks."""
    _check_shape(tasks, y, "labels", "For missing labels, pass NaN.")
    if sample_weight is None:
        return
    if isinstance(sample_weight, dict) or _shape(sample_weight)[1:] not in {(), (1,)}:
        mend = "For tasks without weights, pass arrays of ones."
        _check_shape(tasks, sample_weight, "sample weights", mend)


def _check_shape(tasks, values, what, mend):
    """Check an array with a column per task, or a dict of arrays by task name."""
    names, by_name = [task.name for task in tasks], isinstance(values, dict)
    if by_name:
        unknown, missing = sorted({*values} - {*names}), sorted({*names} - {*values})
        received, fits = f"unknown {unknown}, missing {missing}", not unknown + missing
    else:
        received = shape = () if values is None else _shape(values)
        fits = shape[1:] == (len(names),) or (len(names), len(shape)) == (1, 1)
    if not fits:
        expected = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
        raise ValueError(
            f"The {what} must be a dict by task name ({expected}), or one array of "
            f"shape (batch, {len(names)}), one column per task. Received: {received}. "
            f"{mend}"
        )
    for task in tasks:
        shape = _shape(values[task.name] if by_name else values)
        # In one array, each task has a column; a column by name may have no width.
        width = shape[1:] or (1,) if by_name else (1,)
        widths = task.label_widths if what == "labels" else {1}
        if len(width) != 1 or width[0] not in widths:
            expected = [f"(batch, {width})" for width in sorted(widths)]
            expected = ["(batch,)", *expected] if 1 in widths else expected
            mend = f" {task.rules.mend}" if what == "labels" else ""
            raise ValueError(
                f"The {what} of the task {task.name!r} must have the shape "
                f"{' or '.join(expected)}. Received: {shape}.{mend}"
            )


def _shape(values):
    shape = values.shape if hasattr(values, "shape") else np.shape(values)
    # TensorFlow forgets the rank if it gets `(batch,)` and then `(batch, 1)`.
    return (None,) if getattr(shape, "rank", 1) is None else tuple(shape)
