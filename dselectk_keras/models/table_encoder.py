"""A model from the columns of a table to features."""

import math
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from dselectk_keras.models.columns import LISTS, inferred
from dselectk_keras.utils import check_count

# How far from the mean a number may be, in standard deviations.
FARTHEST = 10.0


def table_encoder(
    frame: Any, hashed: Mapping[str, int] | None = None, max_items: int = 20
) -> keras.Model:
    r"""Build a model from the columns of a table to features.

    It is the first argument of `build_multitask_model`, which then takes tables, and is
    saved, exported and served with the model. By the values of a column in `frame`:

    - A number $x$ becomes $(x - \mu) / \sigma$, at most 10 from 0, and whether it is
      missing, as NaN and infinity are. Booleans are numbers.
    - A string is looked up, and has an embedding. Strings that `frame` does not have,
      and missing ones, share an embedding.
    - A list of strings has the mean of their embeddings, zero if it is empty.

    A column with one value in `frame` is left out, with a line that says so. Strings
    need TensorFlow, whose layers look them up.

    Args:
        frame: The rows to train on, a table of pandas without labels. What is looked
            up, means and deviations come from these rows alone.
        hashed: For columns of ids with too many values for a look-up: a dict from their
            names to numbers of embeddings. Ids may share one. They are strings, lists
            of strings, or integers without gaps.
        max_items: The number of items of a list that are read, the last ones.

    Returns:
        A model with an input for each column, by name.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [31.0, None, 52.0], "price": [1, 2, 4]})
        >>> table_encoder(frame).output_shape
        (None, 4)
    """
    if not hasattr(frame, "iloc"):
        raise ValueError(
            f"`frame` must be a table of pandas. Received: a {type(frame).__name__}."
        )
    check_count("max_items", max_items, minimum=2)
    hashed = dict(hashed or {})
    if unknown := hashed.keys() - {*frame.columns}:
        raise ValueError(
            f"`hashed` must name columns of the table: {', '.join(frame.columns)}. "
            f"Received: {', '.join(sorted(unknown))}."
        )
    inputs, features = {}, []
    for name in frame.columns:
        column = inferred(frame[name])
        if _is_constant(column):
            print(  # noqa: T201
                f"Left out: {name}, which has one value in the rows to train on."
            )
        elif column.dtype.kind in "biuf" and name not in hashed:
            inputs[name] = keras.Input((1,), name=name)
            features += _number(inputs[name], column)
        else:
            inputs[name], feature = _ids(name, column, hashed.get(name), max_items)
            features.append(feature)
    if not features:
        raise ValueError(
            "The table must have a column that differs between the rows to train on."
        )
    return keras.Model(inputs, keras.layers.Concatenate()(features))


def _is_constant(column):
    """Check whether a column has one value: its weights would not be trained."""
    values = [tuple(each) if isinstance(each, LISTS) else each for each in column]
    return column.__class__(values, dtype=object).nunique(dropna=False) < 2


def _number(x, column):
    """List whether a number is missing, and the number, standardized."""
    missing = ops.logical_not(ops.isfinite(x))
    features = [ops.cast(missing, "float32")]
    known = column.dropna().astype("float64")
    known = known[abs(known) < math.inf]
    if known.min() < known.max():
        mean, deviation = float(known.mean()), float(known.std())
        # Not `Normalization`, whose numbers ONNX files lose. In float32, since half
        # precision does not hold what is large.
        scale = keras.layers.Rescaling(
            1 / deviation, -mean / deviation, dtype="float32"
        )
        # Of a column that is almost constant, other rows may be far off.
        scaled = ops.clip(scale(x), -FARTHEST, FARTHEST)
        features.append(ops.where(missing, 0.0, scaled))
    return features


def _ids(name, column, num_bins, max_items):
    """Make the input of strings, lists or ids, and the embedding of what it has."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"The column {name!r} has strings or ids, which only TensorFlow looks up. "
            f"Received: the backend {keras.backend.backend()}. Use TensorFlow, or "
            "write numbers in their place."
        )
    known, layers = column.dropna(), keras.layers
    is_list = any(isinstance(value, LISTS) for value in known)
    is_integer = column.dtype.kind in "iu" and len(known) == len(column)
    items = [x for each in known for x in each] if is_list else [*known]
    other = [item for item in items if not (is_integer or isinstance(item, str))]
    if other:
        raise ValueError(
            f"The column {name!r} must have strings, lists of strings, numbers, or, if "
            f"it is hashed, integers without gaps. Received: {other[0]!r}. Convert it."
        )
    shape, dtype = (max_items,) * is_list, "int64" if is_integer else "string"
    x = keras.Input(shape, dtype=dtype, name=name)
    if num_bins is None:
        # The padding of a list is 0, and a string that is not known 1, or else 0.
        look_up = layers.StringLookup(
            vocabulary=sorted({*items} - {""}), mask_token="" if is_list else None
        )
        size = len(look_up.get_vocabulary())
    else:
        size = check_count(f"hashed[{name!r}]", num_bins)
        # An empty string, which is missing or padding, is 0.
        look_up = layers.Hashing(size + 1, mask_value=None if is_integer else "")
        size += 1
    ids = look_up(x)
    embedded = layers.Embedding(size, min(16, 2 + math.isqrt(size)))(ids)
    if not is_list:
        return x, embedded
    counts = ops.cast(ops.expand_dims(ids, -1) != 0, embedded.dtype)
    total = ops.sum(embedded * counts, axis=1)
    return x, total / ops.maximum(ops.sum(counts, axis=1), 1.0)
