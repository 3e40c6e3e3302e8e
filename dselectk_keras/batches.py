"""Training batches in an order set by a seed."""

from typing import Any

import keras
import numpy as np

from dselectk_keras.utils import check_count, unmasked

__all__ = ["Batches"]


class Batches(keras.utils.PyDataset):
    """Batches of a split in a new order every epoch, the same on every backend.

    Keras' own shuffling depends on the backend, and on TensorFlow with a global seed
    every epoch has the same order.

    Args:
        data: A `datasets.Split`, or a tuple of inputs, labels and optionally sample
            weights.
        batch_size: Examples per batch; the last may have fewer.
        seed: Seed of the orders.
        **kwargs: Arguments of `keras.utils.PyDataset`, such as `workers`, which are
            threads.
    """

    def __init__(
        self, data: Any, batch_size: int, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if self.use_multiprocessing:
            raise ValueError(
                "`use_multiprocessing` must be False, because other processes would "
                "not see the new order of an epoch. Received: "
                f"use_multiprocessing={self.use_multiprocessing!r}. Use threads: pass "
                "`workers` alone."
            )
        check_count("seed", seed, minimum=0)
        self.data = as_arrays("data", data)
        self.batch_size = check_count("batch_size", batch_size)
        self._num_samples = len(keras.tree.flatten(self.data)[0])
        self._rng = np.random.default_rng(seed)
        self.shuffle()

    @property
    def num_batches(self) -> int:
        return -(-self._num_samples // self.batch_size)

    def __getitem__(self, index: int) -> tuple:
        if index == self.num_batches - 1:
            self._used = True
        chosen = self.order[index * self.batch_size : (index + 1) * self.batch_size]
        return keras.tree.map_structure(lambda array: _rows(array, chosen), self.data)

    def on_epoch_end(self) -> None:
        # On some backends Keras calls this before the first epoch too, and may have
        # read a batch by then.
        if self._used:
            self.shuffle()

    def shuffle(self) -> None:
        """Draw the next order."""
        self.order = self._rng.permutation(self._num_samples)
        self._used = False


def _rows(array, chosen):
    rows = array[chosen]
    # Keras takes strings of a generator as tensors alone.
    return keras.ops.convert_to_tensor(rows, "string") if rows.dtype == object else rows


def check_split(name: str, values: Any) -> None:
    """Check that a value is a tuple of inputs, labels and perhaps sample weights."""
    if not isinstance(values, (tuple, list)) or not 2 <= len(values) <= 3:
        raise ValueError(
            f"`{name}` must be a tuple of inputs and labels, optionally with sample "
            f"weights, such as `dataset.train`. Received: {type(values).__name__}."
        )


def as_arrays(name: str, values: Any) -> tuple:
    """Check inputs, labels and perhaps sample weights, and convert them to arrays."""
    check_split(name, values)
    if any(len(getattr(table, "columns", ())) > 1 for table in values[1:]):
        raise ValueError(
            f"Labels and sample weights in `{name}` must be arrays, or dicts of arrays "
            "by task name. Received: a table, whose columns would lose their names. "
            "Pass `dict(table)`, or `table.to_numpy()` in the order of the tasks."
        )
    # Columns that the encoder of a table has read stay what they are.
    arrays = keras.tree.map_structure(
        lambda array: unmasked(np.asanyarray(array)), tuple(values)
    )
    if hasattr(values[0], "columns") and arrays[0].dtype == object:
        raise ValueError(
            f"A table of inputs in `{name}` must have columns of numbers, which become "
            "one array. Received: columns of other kinds. Pass `dict(table)` to a "
            "model with an input for each column."
        )
    arrays = arrays[0], *keras.tree.map_structure(_numbers, arrays[1:])
    lengths = {len(array) if array.ndim else 0 for array in keras.tree.flatten(arrays)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The arrays of `{name}` must have the same positive number of examples. "
            f"Received lengths: {sorted(lengths)}."
        )
    return arrays


def _numbers(array):
    """Labels of objects as numbers, of which None is NaN, if they are some."""
    try:
        return array.astype("float64") if array.dtype == object else array
    except (TypeError, ValueError):
        return array
