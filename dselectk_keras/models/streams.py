"""Batches that a layer of the model reads, such as the encoder of a table."""

from collections.abc import Callable
from typing import Any

import keras

from dselectk_keras.models.columns import table_reader


def as_stream(model: Any, x: Any) -> Any:
    """Read the batches of a stream for a model that reads tables; else keep `x`."""
    encoder = table_reader(model)
    return x if encoder is None else encoder.read_stream(model, x)


class ReadLoader(keras.utils.PyDataset):
    """Reads the batches of a `DataLoader`, in its order; it begins anew at batch 0."""

    def __init__(self, read: Callable, loader: Any):
        super().__init__()
        self.read, self.loader = read, loader

    def __getitem__(self, index: int) -> Any:
        """The next batch."""
        if index == 0:
            self.batches = iter(self.loader)
        return self.read(next(self.batches))

    @property
    def num_batches(self) -> int:
        return len(self.loader)
