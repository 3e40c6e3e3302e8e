"""Inputs, labels and sample weights of a model from the columns of a table."""

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import all_layers
from dselectk_keras.models.task import Task
from dselectk_keras.utils import shown, unmasked

# Objects that NumPy would make numbers of.
NO_NUMBERS = str, bytes, np.datetime64, np.timedelta64
LISTS = list, tuple, np.ndarray


def as_inputs(model: Any, x: Any) -> Any:
    """Convert a data frame to the inputs of a model that has them by name.

    Columns that the model does not read are left out. Floating-point numbers are in
    float32, strings are objects. A missing number is NaN, and a missing string empty.
    Lists of strings become as long as the input, with their last items, and empty ones.
    Integers and booleans stay exact, or raise an error. Other data stay as they are,
    but masked arrays have NaN where they are masked. The encoder of a table reads its
    columns itself, also from a dict of them.
    """
    is_table = hasattr(x, "iloc")
    encoder = table_reader(model) if is_table or isinstance(x, dict) else None
    if encoder is not None:
        return encoder.read_table(x)
    wanted = getattr(model, "input", None)
    if isinstance(x, (dict, np.ma.MaskedArray)):
        return keras.tree.map_structure(unmasked, x)
    if not (is_table and isinstance(wanted, dict)):
        return x
    if lacking := [name for name in wanted if name not in x.columns]:
        raise ValueError(
            f"The table must have a column for each input, {', '.join(wanted)}. "
            f"Received: no {', '.join(lacking)}."
        )
    found = {}
    for name, tensor in wanted.items():
        dtype, axes = getattr(tensor, "dtype", ""), getattr(tensor, "shape", ())[1:]
        if dtype == "string" and axes not in {(), (1,), (None,)}:
            found[name] = _lists(name, x[name], tensor.shape[1])
        else:
            found[name] = _column(name, x[name], dtype)
    return found


def table_reader(model: Any) -> Any:
    """Find the layer of a model that reads a table, or `None`."""
    layers = all_layers(model) if isinstance(model, keras.Model) else ()
    return next((each for each in layers if hasattr(each, "read_table")), None)


def _lists(name, column, length):
    """Arrange the strings of lists in a tensor `(rows, length)`."""
    found = np.full((len(column), length), "", object)
    for row, items in zip(found, column, strict=True):
        is_list = isinstance(items, LISTS)
        last = list(items)[-length:] if is_list else []
        other = [item for item in last if not isinstance(item, str)]
        if other or not (is_list or items is None or isinstance(items, float)):
            raise ValueError(
                f"The column {name!r} must have lists of strings. Received: "
                f"{shown(items)}. Convert them."
            )
        row[: len(last)] = last
    # Keras takes no array of strings that has two axes.
    return ops.convert_to_tensor(found, "string")


def _column(name, column, wanted):
    """An array of the values of a column, for an input of a dtype."""
    column = inferred(column)
    missing = column.isna().to_numpy()
    is_exact = wanted.startswith(("int", "uint", "bool"))
    kind = column.dtype.kind
    if missing.all() and (is_exact or wanted.startswith("float")):
        column, kind = column.astype("float64"), "f"
    # Where all strings are missing, pandas infers numbers.
    if kind not in "biuf" or wanted == "string":
        return _strings(name, column)
    known = _numpy(column[~missing])
    if not is_exact and kind != "f" and not missing.any():
        return known
    dtype = wanted if is_exact or wanted == "float64" else "float32"
    with np.errstate(invalid="ignore", over="ignore"):
        values = known.astype(dtype)
        wraps = (values < 0) != (known < 0)  # As from -1 to 255, and back.
        lost = known[wraps | (values.astype(known.dtype) != known)]
    if is_exact and (missing.any() or len(lost)):
        raise ValueError(
            f"The column {name!r} must have a value in each row that its input, "
            f"{wanted}, holds. Received: {lost[0] if len(lost) else 'missing values'}. "
            "Fill gaps with a number that no other row has, for example with "
            f"`frame[{name!r}].fillna(0)`."
        )
    if kind != "f" and len(lost):
        raise ValueError(
            f"The column {name!r} has missing values, and {dtype}, which has NaN for "
            f"them, does not hold its integers. Received: {lost[0]}. Fill the gaps, "
            f"for example with `frame[{name!r}].fillna(0)`; or, if the numbers may be "
            f"rounded, pass `frame[{name!r}].astype('float64')`."
        )
    if not missing.any():
        return values
    found = np.full(len(missing), np.nan, dtype)
    found[~missing] = values
    return found


def inferred(column):
    """Find the dtype of objects and categories, such as booleans with gaps."""
    if column.dtype.kind != "O":
        return column
    return column.astype(object).convert_dtypes()


def _numpy(column):
    """An array of a column without gaps."""
    dtype = getattr(column.dtype, "subtype", column.dtype)  # That of a sparse column.
    return column.to_numpy(getattr(dtype, "numpy_dtype", dtype))


def _strings(name, column):
    values = column.to_numpy(object, na_value="")
    other = next((value for value in values if not isinstance(value, str)), None)
    if other is None:
        return values
    raise ValueError(
        f"The column {name!r} must have numbers, or strings alone. Received: "
        f"{shown(other)} of the type {type(other).__name__}. Convert it, for example "
        f"with `frame[{name!r}].astype(str)`."
    )


def as_labels(tasks: Sequence[Task], y: Any, sample_weight: Any = None) -> tuple:
    """Convert labels and sample weights to arrays of numbers: one each, if possible.

    A dict of columns by task name, or a data frame, becomes one float32 array
    `(samples, tasks)`, of which a step needs no slice per task. A dict stays one if a
    column is wider, or has integers that are not exact in floating-point numbers.
    """
    names = [task.name for task in tasks]
    y = _as_numbers(names, y, "labels", 1)
    sample_weight = _as_numbers(names, sample_weight, "sample weights", 2)
    joined = _joined(names, y)
    if not isinstance(joined, dict):
        return joined, _joined(names, sample_weight)
    if len(getattr(sample_weight, "shape", ())) == 2 and sample_weight.shape[1] > 1:
        # Keras wants them in the form of the labels.
        sample_weight = dict(zip(names, sample_weight.T, strict=False))
    return y, sample_weight


def _as_numbers(names, values, what, least):
    """Convert labels or weights, or those in a dict, to arrays of numbers."""
    if isinstance(values, dict):
        return {
            name: _numbers(each, f"{what} of the task {name!r}")
            for name, each in values.items()
            if each is not None
        }
    columns = list(getattr(values, "columns", ()))
    # One column of weights, unless it is named for a task, is for all tasks. A table
    # without names has numbers.
    named = len(columns) >= least or {*columns} & {*names}
    if named and columns not in (names, [*range(len(columns))]):
        raise ValueError(
            "The columns of a table must be the tasks, in their order. Received: "
            f"{columns} for the tasks {names}. Pass `table[names]`."
        )
    if not columns or not hasattr(values, "iloc"):
        return values if ops.is_tensor(values) else _numbers(values, what)
    parts = {name: values.iloc[:, i] for i, name in enumerate(columns)}
    return _joined(columns, _as_numbers(names, parts, what, least), always=True)


def _numbers(values, what):
    """Convert a column, tensor or list to an array of numbers, with NaN for None."""
    if values is None:
        return None
    if hasattr(values, "columns") and hasattr(values, "iloc"):
        # A table of one task, whose columns need no names.
        columns = [_numbers(values.iloc[:, i], what) for i in range(values.shape[1])]
        return np.stack(columns, axis=-1)
    if hasattr(values, "iloc"):
        values = inferred(values)
        is_number = values.dtype.kind in "biuf"
        if is_number and not values.isna().any():
            values = _numpy(values)
        else:
            values = values.to_numpy(
                "float32" if is_number else object, na_value=np.nan
            )
    array = as_numpy(values)
    if array.dtype.kind in "biuf":
        return array
    problem: Any = f"the dtype {array.dtype}"
    if array.dtype == object:
        problem = next(
            (each for each in array.flat if isinstance(each, NO_NUMBERS)), None
        )
    if problem is None or array.dtype.kind == "V":  # Such as bfloat16.
        try:
            return array.astype("float32")
        except (TypeError, ValueError) as error:
            problem = error
    raise ValueError(
        f"The {what} must be numbers. Received: {problem}. Replace classes by "
        "numbers from 0, for example with `pandas.factorize`, and missing labels "
        "by NaN."
    )


def with_joined_labels(tasks: Sequence[Task], data: Any) -> Any:
    """Join the labels by name of batches, as `as_labels` does, before each step.

    With 1,000 tasks, a step of labels by name takes JAX eight times as long to compile.
    """
    names = [task.name for task in tasks]
    if not (hasattr(data, "element_spec") and hasattr(data, "map")):
        return converted(data, functools.partial(join_batch, names))
    spec = data.element_spec
    spec = spec[1:] if isinstance(spec, tuple) else ()
    fits = [_is_column_by_name(names, each) for each in spec]
    if not any(fits[:1]):
        return data
    import tensorflow as tf

    def join(x, *columns):
        joined = (
            tf.stack(
                [tf.reshape(tf.cast(y[name], "float32"), [-1]) for name in names], 1
            )
            if fit
            else y
            for fit, y in zip(fits, columns, strict=True)
        )
        return x, *joined

    return data.map(join)


def _is_column_by_name(names, spec):
    """Check whether a spec of TensorFlow has a column of numbers for each name."""
    if not isinstance(spec, dict) or {*spec} != {*names}:
        return False
    shapes = [getattr(each, "shape", None) for each in spec.values()]
    return all(
        shape is not None and (shape.rank == 1 or (shape.rank == 2 and shape[1] == 1))
        for shape in shapes
    )


def join_batch(names: Sequence[str], batch: Any) -> Any:
    """Join the labels, and the sample weights, of a batch of NumPy arrays."""
    batch = keras.tree.map_structure(unmasked, batch)
    if not isinstance(batch, tuple) or len(batch) < 2:
        return batch
    x, *columns = batch
    joined = [_joined_arrays(names, each) for each in columns]
    return batch if isinstance(joined[0], dict) else (x, *joined)


def _joined_arrays(names, values):
    if {*map(type, keras.tree.flatten(values))} != {np.ndarray}:
        return values
    return _joined(names, values, exact=False)


def converted(data: Any, convert: Callable) -> Any:
    """Convert the batches of a `PyDataset` or a generator; return other data as is."""
    if isinstance(data, keras.utils.PyDataset):
        return ConvertedBatches(convert, data)
    is_generator = isinstance(data, types.GeneratorType)
    return (convert(batch) for batch in data) if is_generator else data


class ConvertedBatches(keras.utils.PyDataset):
    """The batches of a `PyDataset`, each converted by a function."""

    def __init__(self, convert: Callable, data: keras.utils.PyDataset):
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.convert, self.data = convert, data

    def __getitem__(self, index: int) -> Any:
        return self.convert(self.data[index])

    @property
    def num_batches(self) -> int | None:
        return self.data.num_batches

    def on_epoch_begin(self) -> None:
        self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.data.on_epoch_end()


def _joined(names, values, always=False, exact=True):
    """One float32 array of columns by name, or `values` if there is none that equals.

    Tables are `always` joined. Integers that are not `exact` in it stay by name.
    """
    if not isinstance(values, dict) or {*values} != {*names}:
        return values
    columns = [values[name] for name in names]
    rows = len(columns[0]) if columns[0].ndim else 0
    fits = {(rows,), (rows, 1)}
    if not always and not all(
        each.shape in fits and (not exact or _is_exact(each)) for each in columns
    ):
        return values
    rows = np.array([column.reshape(-1) for column in columns], "float32")
    return np.ascontiguousarray(rows.T)


def _is_exact(array):
    """Check whether the floating-point numbers of Keras hold all those of an array."""
    if array.dtype.kind not in "iu" or not array.size:
        return True
    limit = {"float16": 2**11, "bfloat16": 2**8}.get(keras.config.floatx(), 2**24)
    return -limit <= int(array.min()) and int(array.max()) <= limit


def as_numpy(values: Any) -> Any:
    """Convert a table, tensor or list to an array; a sparse matrix stays one."""
    if values is None or isinstance(values, np.ndarray):
        return unmasked(values)
    if hasattr(values, "tocsr"):  # A sparse matrix of SciPy.
        return values.tocsr()
    is_tensor = ops.is_tensor(values)
    return ops.convert_to_numpy(values) if is_tensor else np.asarray(values)


def as_dense(values: Any) -> Any:
    """Convert the sparse matrices of SciPy among arrays to arrays."""
    return keras.tree.map_structure(
        lambda array: array.toarray() if hasattr(array, "toarray") else array, values
    )
