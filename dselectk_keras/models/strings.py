"""Strings in inputs and labels."""

from typing import Any

import keras
import numpy as np


def with_string_objects(x: Any) -> Any:
    """Return inputs in which strings are what Keras takes: objects, or a tensor.

    Raises an error on JAX and torch, which have no strings.

    Args:
        x: Inputs as for `fit`. What are no arrays or columns of a table stay as they
            are.
    """
    if isinstance(x, dict):
        return {name: _as_objects(each, name) for name, each in x.items()}
    return _as_objects(x)


def _as_objects(x, name=None):
    return keras.tree.map_structure(lambda values: _as_object(values, name), x)


def _as_object(values, name):
    if not is_strings(values):
        return values
    backend = keras.backend.backend()
    if backend == "tensorflow":
        array = np.asarray(values)
        if isinstance(array.flat[0], bytes):  # Keras takes objects that are `str`.
            array = np.char.decode(array.astype(bytes), "utf-8")
        if array.ndim == 1:
            return array.astype(object)
        import tensorflow as tf  # Keras takes no matrix of objects.

        return tf.convert_to_tensor(array.astype(object))
    raise ValueError(
        f"Inputs must be numbers on {backend}. Received: strings"
        f"{f' in {name!r}' if name else ''}, such as {np.ravel(values)[0]!r}. Look "
        "them up before the model, for example with `pandas.factorize`, or use "
        "KERAS_BACKEND=tensorflow and `keras.layers.StringLookup`."
    )


def is_strings(values: Any) -> bool:
    """Whether an array, or a column of a table, has strings."""
    if not isinstance(values, np.ndarray) and not hasattr(values, "to_numpy"):
        return False
    array = np.asarray(values)
    return array.size > 0 and isinstance(array.flat[0], (str, bytes))
