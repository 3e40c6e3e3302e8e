"""The data that all copies share."""

from typing import Any

import keras

from dselectk_keras.training.batches import as_arrays
from dselectk_keras.utils import check_count

PROBE_SIZE = 512


class Data:
    """Training and validation data, as tuples of NumPy arrays."""

    def __init__(self, train, validation, batch_size):
        check_count("batch_size", batch_size)
        self.train: Any = as_arrays("data", train)
        self.validation: Any = None
        if validation is not None:
            self.validation = as_arrays("validation_data", validation)
        self.batch_size = batch_size

    @property
    def probe(self):
        """Inputs on which to record per-example gates."""
        inputs, *_ = self.train if self.validation is None else self.validation
        return keras.tree.map_structure(lambda array: array[:PROBE_SIZE], inputs)

    @property
    def first_batch(self):
        """A batch, for its shapes."""
        size = self.batch_size
        return keras.tree.map_structure(lambda array: array[:size], self.train)

    @property
    def num_bytes(self):
        """The size of all arrays in memory."""
        arrays = keras.tree.flatten((self.train, self.validation))
        return sum(array.nbytes for array in arrays if array is not None)
