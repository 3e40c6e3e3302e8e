"""The arrays of a problem, split and standardized."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from dselectk_keras.datasets import Split
from research.engine.experiment import TRIAL_SEED

SIZES = (600, 400, 800)  # Examples for training, validation and test.


@dataclasses.dataclass(frozen=True)
class Table:
    """Arrays of a problem.

    Args:
        splits: Training, validation and test: pairs of inputs and labels, NaN if a
            label is missing.
        binary: For each task, whether its labels are 0 and 1, and not numbers.
        groups: The known group of each task, if there is one.
    """

    splits: tuple
    binary: np.ndarray
    groups: Any = None


def standardized(splits, binary, groups=None):
    """A `Table` with inputs, and labels that are numbers, of mean 0 and deviation 1.

    Means and deviations are those of the training. Inputs that are missing have the
    mean; those that do not differ in the training are at most 1 from their value there.
    Inputs that are integers are tokens, which stay.
    """
    binary = np.asarray(binary, bool)
    tokens = np.issubdtype(splits[0][0].dtype, np.integer)

    def moments(array, kept: Any = False):
        array = np.where(np.isnan(array).all(axis=0), 0.0, array)
        mean, std = np.nanmean(array, axis=0), np.nanstd(array, axis=0)
        return np.where(kept, 0.0, mean), np.where(kept, 1.0, std)

    def inputs(x):
        scaled = np.nan_to_num((x - mean_x) / np.where(std_x == 0, 1.0, std_x))
        return np.where(std_x == 0, np.clip(scaled, -1, 1), scaled).astype("float32")

    mean_x, std_x = moments(splits[0][0], tokens)
    mean_y, std_y = moments(splits[0][1], binary)
    std_y = np.where(std_y == 0, 1.0, std_y)
    splits = tuple(
        Split(inputs(x), ((y - mean_y) / std_y).astype("float32")) for x, y in splits
    )
    return Table(splits, binary, groups)


def split_rows(x, y, binary, seed, groups=None, sizes=SIZES):
    """A `Table` of rows that are drawn: up to `sizes`, or in the ratio 3 : 1 : 1."""
    order = np.random.default_rng(seed).permutation(len(x))
    if sum(sizes) > len(x):
        sizes = 3 * len(x) // 5, len(x) // 5
    parts = np.split(order, np.cumsum(sizes)[:3])[:3]
    return standardized([(x[part], y[part]) for part in parts], binary, groups)


def split_apart(x, y, binary, seed, groups=None, sizes=SIZES):
    """The `Table` of `split_rows`, but no trial sees a row of a reported test."""
    parts = apart(len(x), seed, sizes)
    return standardized([(x[part], y[part]) for part in parts], binary, groups)


def apart(count, seed, sizes):
    """Draw rows for training, validation and test: three arrays of indices.

    Those of reported tests are drawn from a third of the rows at most, of which trials
    have none: they have the rows for validation twice.
    """
    if sum(sizes) > count:
        sizes = 3 * count // 5, count // 5, count // 5
    tested = min(count // 3, count - sum(sizes[:2]))
    others, held = np.split(np.random.default_rng(0).permutation(count), [-tested])
    rng = np.random.default_rng(seed)
    train, validation = np.split(rng.permutation(others), np.cumsum(sizes)[:2])[:2]
    if seed >= TRIAL_SEED:
        return train, validation, validation
    return train, validation, rng.permutation(held)[: sizes[2]]


def as_numbers(frame, most=12):
    """Columns as numbers; texts are one column for each of their frequent values.

    Numbers that are missing are NaN.
    """
    frame = frame.copy()
    for name in frame.select_dtypes(exclude="number"):
        frequent = frame[name].value_counts().index[:most]
        frame[name] = frame[name].where(frame[name].isin(frequent)).astype(object)
    return pd.get_dummies(frame, dtype="float32").to_numpy("float32")
