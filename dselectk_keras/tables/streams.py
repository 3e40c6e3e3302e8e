"""Batches of tables, or of raw columns, as inputs of a model with a table encoder."""

from typing import Any

import keras
import numpy as np

from dselectk_keras.models.columns import as_inputs, as_labels, as_numpy, converted
from dselectk_keras.models.streams import ReadLoader


class ReadColumn(np.ndarray):
    """A column that the encoder of a table has read, such as ids in place of strings.

    Raw columns of ids, or of numbers, may have the dtype of the input, too.
    """

    def __array_function__(self, *args: Any) -> Any:
        """Call a function of NumPy: columns that are joined stay such columns."""
        found = super().__array_function__(*args)
        return found.view(ReadColumn) if type(found) is np.ndarray else found


def is_read(encoder: Any, columns: Any) -> bool:
    """Check whether columns by name are what the encoder of a table has read.

    Of a `tf.data.Dataset`, only the dtypes say it.
    """

    def fits(column, dtype):
        if isinstance(column, np.ndarray) or keras.ops.is_tensor(column):
            return isinstance(column, ReadColumn)
        return dtype in str(getattr(column, "dtype", ""))

    dtypes = encoder.input_dtypes
    return isinstance(columns, dict) and all(
        fits(columns.get(name), dtypes[name]) for name in dtypes
    )


def read_stream(encoder: Any, model: Any, x: Any) -> Any:
    """Read the batches of a stream for a model with an encoder; else keep `x`.

    In the batches, `x` is a table of pandas, or a dict of columns.
    """

    def read(batch):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        if isinstance(x, dict):  # Tensors of raw columns may look as if they were read.
            x = {name: as_numpy(column) for name, column in x.items()}
        if model.loss is None and y is not None:
            y, weights = as_labels(model.tasks, y, weights)
        return keras.utils.pack_x_y_sample_weight(as_inputs(model, x), y, weights)

    if hasattr(x, "element_spec"):  # A `tf.data.Dataset`.
        spec = x.element_spec
        columns = spec[0] if isinstance(spec, tuple) else spec
        return x if is_read(encoder, columns) else x.map(_in_graph(encoder))
    return ReadLoader(read, x) if hasattr(x, "batch_sampler") else converted(x, read)


def _in_graph(encoder):
    """A function that reads the columns of a batch of tensors, on TensorFlow."""
    columns = encoder.raw_columns()

    def read(x, *others):
        x = columns({name: x[name] for name in columns.input})
        return (x, *others) if others else x

    return read
