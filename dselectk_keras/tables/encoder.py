"""A model from the columns of a table to features."""

import importlib.util
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.models.columns import LISTS, as_numpy
from dselectk_keras.tables.columns import (
    column_kinds,
    convert_columns,
    describe_columns,
    import_pandas,
)
from dselectk_keras.tables.edges import find_edges, standardized_labels
from dselectk_keras.tables.streams import ReadColumn, is_read, read_stream
from dselectk_keras.tables.targets import find_targets
from dselectk_keras.utils import Configured, check_choice, check_count

BINS = "auto", "linear", "both", "none"
# How far from the mean a number may be, in standard deviations.
FARTHEST = 10.0
# The ids of strings that are missing, or padding, and of those that are not known.
MISSING, UNKNOWN, FIRST = 0, 1, 2
# Columns of more strings have an embedding of so many units.
MOST_SLOTS, UNITS = 64, 16
# A string is known if it is in so many rows to train on.
FEWEST, MOST_FEWEST, PART = 2, 10, 1000
# The bytes of the longest string that has a hash.
HASHED_BYTES = 4096
# So many values of which none is known are told.
TOLD = 10
# A column is shifted if float32 rounds its numbers to more than this part of their
# standard deviation.
ROUNDING = 1e-3
SMALLEST = float(np.finfo("float32").tiny)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class TableEncoder(Configured, keras.Layer):
    r"""Encodes the columns of a table, whose state is in its config.

    Numbers $x$ of a column with the mean $\mu$, the deviation $\sigma$ and the edges
    $e_0 < \dots < e_m$ become, in float32 whatever the dtype policy,

    $$
    \frac{x - \mu}{\sigma}, \qquad \text{missing}(x), \qquad
    \min\Bigl(\max\Bigl(\frac{x - e_{j-1}}{e_j - e_{j-1}}, 0\Bigr), 1\Bigr), \qquad
    [e_{j-1} \le x < e_j]
    $$

    for $j = 1, \dots, m$. The first is at most 10 from 0. All but the second are 0 if x
    is missing, and the second is left out of columns without gaps in the rows to train
    on. The last ones are only those of columns with `one_hot`.

    Strings are ids: 0 is missing, 1 is unknown, and the others are known. A column of
    few strings is one-hot, one of many has an embedding, and a list has the mean of the
    embeddings of its items. Use `table_encoder`, which finds the columns in a table.

    Args:
        columns: A list of a dict per column, with its `name`; of numbers, `mean`,
            `deviation`, `offset`, `has_gaps`, `edges` and `one_hot`; of strings,
            `values`, `has_gaps` and `has_others`; of lists, `values` and `is_list`; or
            `hashed`, the number of embeddings of hashed strings.
        kinds: The kinds of all columns of the table (see `column_kinds`).
        max_items: The number of items of a list that are read, the last ones.
        **kwargs: `name` and the other arguments of `keras.Layer`.

    Reference:
        Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep
        Learning" (NeurIPS 2022), Section 3.2, of which trees and one column at a time.
    """

    def __init__(
        self,
        columns: Any,
        kinds: Mapping[str, str],
        max_items: int = 20,
        **kwargs: Any,
    ):
        super().__init__(**{"dtype": "float32", **kwargs})
        self.columns, self.kinds = [dict(each) for each in columns], dict(kinds)
        self.max_items = max_items
        self._numbers = [each for each in self.columns if "mean" in each]
        strings = [each for each in self.columns if "mean" not in each]
        self._slots = [each for each in strings if _is_one_hot(each)]
        self._embedded = [each for each in strings if not _is_one_hot(each)]
        self._arrange_numbers()
        self._arrange_slots()

    def _arrange_numbers(self):
        """Constants of all numbers, as arrays."""
        number = [(each["mean"], each["deviation"]) for each in self._numbers]
        self._moments = np.array(number, "float32").reshape(-1, 2).T
        gaps = [i for i, each in enumerate(self._numbers) if each["has_gaps"]]
        edges = [
            (i, low, high, j == 1, j == len(each["edges"]) - 1)
            for i, each in enumerate(self._numbers)
            for j, (low, high) in enumerate(
                zip(each["edges"][:-1], each["edges"][1:], strict=True), 1
            )
        ]
        self._gaps = np.array(gaps, "int32")
        columns, low, high, first, last = np.array(edges).reshape(-1, 5).T
        self._of_edge = columns.astype("int32")
        self._low, self._width = low.astype("float32"), (high - low).astype("float32")
        # A number beyond the last edges is in the last bins.
        hot = [self._numbers[i]["one_hot"] for i in self._of_edge]
        self._one_hot = np.flatnonzero(hot).astype("int32")
        self._from = np.where(first, -np.inf, low).astype("float32")[self._one_hot]
        self._to = np.where(last, np.inf, high).astype("float32")[self._one_hot]

    def _arrange_slots(self):
        """The columns and ids of all slots of one-hot strings."""
        slots = [(i, x) for i, each in enumerate(self._slots) for x in _slot_ids(each)]
        self._of_slot, self._slot_ids = np.array(slots, "int32").reshape(-1, 2).T
        sizes = [
            each.get("hashed", len(each.get("values", ()))) for each in self._embedded
        ]
        sizes = [size + FIRST for size in sizes]
        self._starts = np.cumsum([0, *sizes])

    def make_inputs(self) -> dict[str, Any]:
        """An input for each column, by name."""
        return {each["name"]: self._input(each) for each in self.columns}

    @property
    def input_dtypes(self) -> dict[str, str]:
        """The dtype of each input, by name."""
        return {x["name"]: ("int32", "float32")["mean" in x] for x in self.columns}

    def _input(self, column, dtype=None):
        shape = (1,) if "mean" in column else ()
        shape = (self.max_items,) if column.get("is_list") else shape
        dtype = dtype or self.input_dtypes[column["name"]]
        return keras.Input(shape, dtype=dtype, name=column["name"])

    def build(self, input_shape: Any) -> None:
        """Create the embeddings of all columns that have some, one after the other."""
        if self._embedded:
            shape = int(self._starts[-1]), UNITS
            self.embeddings = self.add_weight(shape, "uniform", name="embeddings")
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Encode the inputs, a dict of numbers and ids, to `(batch, features)`."""
        parts = []
        if self._numbers:
            x = [ops.reshape(inputs[each["name"]], (-1, 1)) for each in self._numbers]
            parts += self._encode_numbers(_joined(x))
        if self._slots:
            ids = [ops.reshape(inputs[each["name"]], (-1, 1)) for each in self._slots]
            own = ops.take(_joined(ids), self._of_slot, axis=1)
            parts.append(ops.cast(ops.equal(own, self._slot_ids), "float32"))
        for column, start in zip(self._embedded, self._starts[:-1], strict=True):
            ids = inputs[column["name"]]
            vectors = ops.take(self.embeddings, ids + int(start), axis=0)
            if column.get("is_list"):
                known = ops.cast(ops.expand_dims(ids, -1) != MISSING, vectors.dtype)
                total = ops.sum(vectors * known, axis=1)
                vectors = total / ops.maximum(ops.sum(known, axis=1), 1.0)
            parts.append(ops.reshape(vectors, (-1, UNITS)))
        return _joined(parts)

    def _encode_numbers(self, x):
        x = ops.cast(x, "float32")
        missing = ops.logical_not(ops.isfinite(x))
        x = ops.where(missing, 0.0, x)
        mean, deviation = self._moments
        # Of a column that is almost constant, other rows may be far off.
        scaled = ops.divide(ops.subtract(x, mean), deviation)
        scaled = ops.clip(scaled, -FARTHEST, FARTHEST)
        parts = [ops.where(missing, 0.0, scaled)]
        if len(self._gaps):
            parts.append(ops.cast(ops.take(missing, self._gaps, axis=1), "float32"))
        if len(self._of_edge):
            own = ops.take(x, self._of_edge, axis=1)
            known = ops.take(ops.logical_not(missing), self._of_edge, axis=1)
            known = ops.cast(known, "float32")
            linear = ops.divide(ops.subtract(own, self._low), self._width)
            parts.append(ops.clip(linear, 0.0, 1.0) * known)
            if len(self._one_hot):
                own, known = (ops.take(y, self._one_hot, axis=1) for y in (own, known))
                inside = ops.logical_and(
                    ops.greater_equal(own, self._from), ops.less(own, self._to)
                )
                parts.append(ops.cast(inside, "float32") * known)
        return parts

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Compute the shape of the features."""
        width = len(self._numbers) + len(self._gaps)
        width += len(self._of_edge) + len(self._one_hot) + len(self._of_slot)
        return (None, width + len(self._embedded) * UNITS)

    def raw_columns(self) -> keras.Model:
        """Build a model from raw columns to the inputs, on TensorFlow, for serving."""
        inputs, found = {}, {}
        for each in self.columns:
            name = each["name"]
            if "mean" not in each:
                inputs[name] = self._input(each, "string")
                found[name] = _look_up(each)(inputs[name])
            elif each["offset"]:
                inputs[name] = self._input(each, "float64")
                found[name] = Shift(float(each["offset"]))(inputs[name])
            else:
                inputs[name] = self._input(each)
                found[name] = keras.layers.Identity()(inputs[name])
        return keras.Model(inputs, found, name="raw_columns")

    def read_table(self, frame: Any) -> dict[str, np.ndarray]:
        """Read a table, or a dict of columns, as the inputs of the model, by name.

        Numbers become float32, strings become ids, and lists as long as `max_items`.
        """
        if is_read(self, frame):
            return frame
        if isinstance(frame, Mapping):
            frame = {name: _as_column(each) for name, each in frame.items()}
            frame = import_pandas().DataFrame(frame)
        frame = convert_columns(frame, self.kinds)
        found = {each["name"]: self._read(each, frame) for each in self.columns}
        return {name: each.view(ReadColumn) for name, each in found.items()}

    def read_stream(self, model: Any, x: Any) -> Any:
        """Read the batches of a stream, as `read_table` does; else return `x`."""
        return read_stream(self, model, x)

    def _read(self, column, frame):
        values = frame[column["name"]]
        if "mean" in column:
            # Large numbers keep their differences.
            shifted = values - column["offset"] if column["offset"] else values
            return shifted.to_numpy("float32", na_value=np.nan)
        if not column.get("is_list"):
            ids = _ids(column, values.to_numpy(object))
            known = ids[ids != MISSING]
            if column.get("values") and len(known) >= TOLD and (known == UNKNOWN).all():
                warnings.warn(
                    f"No value of the column {column['name']!r} is known from the rows "
                    f"to train on. Received: {values.dropna().iloc[0]!r} among "
                    f"{len(known)} values, and none such as {column['values'][0]!r}.",
                    stacklevel=2,
                )
            return ids
        found = np.zeros((len(values), self.max_items), "int32")
        for row, items in zip(found, values, strict=True):
            last = list(items)[-self.max_items :] if isinstance(items, LISTS) else []
            if last:
                row[: len(last)] = _ids(column, np.array(last, object))
        return found


def _is_one_hot(column):
    """Check whether the strings of a column are few enough to be one-hot."""
    is_few = len(column.get("values", ())) <= MOST_SLOTS
    return is_few and not column.get("is_list") and "hashed" not in column


def _slot_ids(column):
    """The ids of strings that the rows to train on have."""
    found = [*range(FIRST, FIRST + len(column["values"]))]
    return [MISSING] * column["has_gaps"] + [UNKNOWN] * column["has_others"] + found


def _joined(parts):
    return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


def _as_column(values):
    """One-dimensional values of a column from an array, a tensor or a list."""
    if hasattr(values, "iloc"):
        return values.array  # Columns by name have their rows in order, not by index.
    values = as_numpy(values)
    if getattr(values, "ndim", 1) > 1:
        values = values[:, 0] if values.shape[1] == 1 else [*map(list, values)]
    return values


def _ids(column, values):
    """The ids of strings: hashed, or by the known values."""
    pd = import_pandas()
    missing = pd.isna(values) | (values == "")
    if "hashed" in column:
        found = FIRST + hash_strings(values, missing, column["hashed"])
    else:
        # Not `pd.Categorical`, which warns of values that it does not know.
        codes = pd.Index(column["values"], dtype=object).get_indexer(values)
        found = np.where(codes < 0, UNKNOWN, codes + FIRST)
    return np.where(missing, MISSING, found).astype("int32")


def hash_strings(values: Any, missing: Any, bins: int) -> np.ndarray:
    """Hash strings to integers below `bins`, equally on all backends and machines."""
    texts = [b"" if gap else x.encode() for x, gap in zip(values, missing, strict=True)]
    longest = max(map(len, texts), default=0) or 1
    if longest > HASHED_BYTES:
        raise ValueError(
            f"A string that is hashed must have at most {HASHED_BYTES:,} bytes. "
            f"Received: one of {longest:,}."
        )
    codes = np.array(texts, f"S{longest}").view("uint8").reshape(len(texts), longest)
    # Sums of products of bytes and odd numbers, modulo 2 ** 64.
    sums = np.zeros(len(texts), "uint64")
    for column, factor in zip(codes.T, hash_factors(), strict=False):
        sums += column * factor
    return ((sums >> np.uint64(33)) % np.uint64(bins)).astype("int64")


def hash_factors() -> np.ndarray:
    """Odd numbers of 64 bits, one per byte."""
    rng = np.random.Generator(np.random.PCG64(0))
    return rng.integers(0, 2**63, HASHED_BYTES, dtype="uint64") * np.uint64(
        2
    ) + np.uint64(1)


def _look_up(column):
    """A layer of TensorFlow from strings to the ids of `_ids`."""
    if "hashed" in column:
        return HashStrings(column["hashed"], dtype="int32")
    return keras.layers.StringLookup(vocabulary=column["values"], mask_token="")


class HashStrings(keras.Layer):
    """Hashes strings as `hash_strings` does, on TensorFlow."""

    def __init__(self, bins: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.bins = bins

    def call(self, strings):
        """Compute the ids: 0 of an empty string."""
        import tensorflow as tf

        longest = tf.reduce_max(tf.strings.length(tf.reshape(strings, (-1,))))
        longest = tf.clip_by_value(longest, 1, HASHED_BYTES)
        codes = tf.io.decode_raw(strings, tf.uint8, fixed_length=longest)
        factors = tf.constant(hash_factors().view("int64"))[:longest]
        sums = tf.reduce_sum(tf.cast(codes, tf.int64) * factors, axis=-1)
        shift = tf.constant(33, tf.uint64)
        high = tf.bitwise.right_shift(tf.bitcast(sums, tf.uint64), shift)
        ids = FIRST + tf.cast(high, tf.int64) % self.bins
        return tf.cast(tf.where(strings == "", tf.zeros_like(ids), ids), tf.int32)

    def compute_output_spec(self, strings):
        """The ids have the shape of the strings."""
        return keras.KerasTensor(strings.shape, "int32")


class Shift(keras.Layer):
    """Subtracts a number in float64, of which float32 keeps the difference."""

    def __init__(self, offset: float):
        super().__init__(dtype="float64")
        self.offset = offset

    def call(self, x):
        """Compute the difference."""
        return ops.cast(x - self.offset, "float32")


def table_encoder(
    frame: Any,
    labels: Any = None,
    hashed: Mapping[str, int] | None = None,
    bins: str = "auto",
    max_items: int = 20,
) -> keras.Model:
    r"""Build a model from the columns of a table to features.

    It is the first argument of `build_multitask_model`, which then takes tables, and is
    saved, exported and served with the model. By the values of a column in `frame`:

    - A number has its standardized value, at most 10 from 0, a flag if it is missing,
      and where it is between edges (see `TableEncoder`). Booleans are numbers, and a
      date becomes several (see `convert_columns`).
    - A string is one-hot, or, if there are many, has an embedding. Strings that `frame`
      does not have, or only once or in few rows, are one.
    - A list of strings has the mean of their embeddings, zero if it is empty.

    Columns of one value, and ids, are left out, with a line that says so.

    Args:
        frame: The rows to train on, a table of pandas without labels. All that the
            encoder knows comes from these rows alone.
        labels: A table of their labels, for edges from trees (see `find_edges`), for
            which scikit-learn is needed. `None`: the edges are quantiles.
        hashed: For columns of ids with too many values for a look-up: a dict from their
            names to numbers of embeddings. Ids may share one.
        bins: How numbers are encoded between edges: `"linear"`, or `"both"`, one-hot
            too, or `"none"`. With `"auto"`, `"both"` are used for the columns for which
            `find_edges` says so.
        max_items: The number of items of a list that are read, the last ones.

    Returns:
        A model with an input for each column, by name: a number, or the ids of strings.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [31.0, None, 52.0], "price": [1, 2, 1]})
        >>> table_encoder(frame).output_shape
        (None, 3)
    """
    check_count("max_items", max_items, minimum=2)
    check_choice("bins", bins, BINS)
    hashed = dict(hashed or {})
    kinds = column_kinds(frame, hashed)
    for line in describe_columns(frame, kinds):
        print(line)  # noqa: T201
    converted = convert_columns(frame, kinds)
    numbers = None
    if labels is not None and importlib.util.find_spec("sklearn") is None:
        print(  # noqa: T201
            "Numbers are encoded between quantiles, since edges from trees need "
            'scikit-learn. Run: pip install "dselectk-keras[tables]".'
        )
    elif labels is not None:
        targets = find_targets(labels, [*labels.columns])
        numbers = standardized_labels(targets, labels)
    columns = [_column(name, converted[name], hashed, numbers) for name in converted]
    columns = [each for each in columns if each]
    _limit_edges(columns, len(frame) // 2, bins)
    if not columns:
        raise ValueError(
            "The table must have a column that differs between the rows to train on. "
            f"Received: {len(kinds)} columns, of which none does."
        )
    layer = TableEncoder(columns, kinds, max_items, name="table_encoder")
    inputs = layer.make_inputs()
    return keras.Model(inputs, layer(inputs), name="encoder")


def _limit_edges(columns, most, bins):
    """Keep the edges of the columns that explain most, up to a number of them."""
    most *= bins != "none"
    numbers = [each for each in columns if "gain" in each]
    for each in sorted(numbers, key=lambda each: -each.pop("gain")):
        most -= len(each["edges"])
        each["edges"] = each["edges"] if most >= 0 else []
        each["one_hot"] = each["one_hot"] if bins == "auto" else bins == "both"


def _column(name, column, hashed, labels):
    """What the encoder knows of a column, or `None` if it has one value."""
    known = column.dropna()
    has_gaps = len(known) < len(column)
    is_list = any(isinstance(each, LISTS) for each in known)
    if name in hashed:
        bins = check_count(f"hashed[{name!r}]", hashed[name])
        return {"name": name, "hashed": bins, "is_list": is_list}
    if column.dtype != object:
        return _number(name, column, known, has_gaps, labels)
    items = [x for each in known for x in each] if is_list else known
    counts = import_pandas().Series([*items], dtype=object).value_counts()
    least = FEWEST if len(column) >= 10 * FEWEST else 1
    least = max(least, min(MOST_FEWEST, len(column) // PART))
    values = sorted(x for x in counts.index[counts >= least] if x != "")
    has_others = bool((counts < least).any())
    strings = {"name": name, "values": values, "is_list": is_list}
    return strings | {"has_gaps": has_gaps, "has_others": has_others}


def _number(name, column, known, has_gaps, labels):
    count, offset = known.nunique(), 0
    if not count or (count < 2 and not has_gaps):
        return None
    spread = float(known.std()) if count > 1 else 0.0
    if np.abs(known).max() * 2.0**-24 > ROUNDING * spread:
        offset = round(known.mean()) if spread else known.iloc[0].item()
    shifted = (column - offset if offset else column).to_numpy(
        "float64", na_value=np.nan
    )
    mean = float(np.nanmean(shifted))
    deviation = float((known - offset).std()) if spread else 1.0
    if deviation < SMALLEST:
        raise ValueError(
            f"The column {name!r} must have numbers that float32 tells apart, with a "
            f"standard deviation of {SMALLEST:.2g} or more. Received: {deviation:.2g}. "
            "Multiply them by a number."
        )
    found = {"name": name, "mean": mean, "deviation": deviation, "offset": offset}
    return found | {"has_gaps": has_gaps} | find_edges(shifted, labels)._asdict()
