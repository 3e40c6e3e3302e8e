"""Batches of tables, or of raw columns, as inputs of a model with a table encoder."""

import functools
from typing import Any

import keras

from dselectk_keras.models.columns import (
    as_inputs,
    as_labels,
    as_numpy,
    converted,
    is_read,
    table_reader,
)


def as_stream(model: Any, x: Any) -> Any:
    """Read the batches of a stream for a model that reads tables; else keep `x`.

    In the batches, `x` is a table of pandas, or a dict of columns.
    """
    encoder = table_reader(model)
    if encoder is None:
        return x
    if hasattr(x, "element_spec"):  # A `tf.data.Dataset`.
        spec = x.element_spec
        columns = spec[0] if isinstance(spec, tuple) else spec
        return x if is_read(encoder, columns) else x.map(_in_graph(encoder))
    if hasattr(x, "batch_sampler"):
        return ReadLoader(model, x)
    return converted(x, functools.partial(_read, model))


def _read(model, batch):
    """Read the columns and the labels of a batch."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
    if isinstance(x, dict):  # Tensors of raw columns may look as if they were read.
        x = {name: as_numpy(column) for name, column in x.items()}
    if model.loss is None and y is not None:
        y, weights = as_labels(model.tasks, y, weights)
    return keras.utils.pack_x_y_sample_weight(as_inputs(model, x), y, weights)


def _in_graph(encoder):
    """A function that reads the columns of a batch of tensors, on TensorFlow."""
    columns = encoder.raw_columns()

    def read(x, *others):
        x = columns({name: x[name] for name in columns.input})
        return (x, *others) if others else x

    return read


class ReadLoader(keras.utils.PyDataset):
    """Reads the batches of a `DataLoader`, in its order; it begins anew at batch 0."""

    def __init__(self, model: Any, loader: Any):
        super().__init__()
        self.model, self.loader = model, loader

    def __getitem__(self, index: int) -> Any:
        """The next batch."""
        if index == 0:
            self.batches = iter(self.loader)
        return _read(self.model, next(self.batches))

    @property
    def num_batches(self) -> int:
        return len(self.loader)
