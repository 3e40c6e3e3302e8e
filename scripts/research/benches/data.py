"""The data of problems, split and standardized."""

import dataclasses
import functools
import gzip
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import research.papers.data
from dselectk_keras.datasets import Split
from research.engine.experiment import TRIAL_SEED

SIZES = (600, 400, 800)  # Examples for training, validation and test.


@dataclasses.dataclass(frozen=True)
class Problem:
    """A data set that a bench has.

    Args:
        kind: The problems with which it is shown.
        load: A function of a seed and the folder of the data that returns a `Table`.
        num_experts: The number of experts of a model for it.
        family: The problems with like data or functions: families are drawn.
        name: What it is called.
        overlap: Of a table, the part of the rows for test of a draw that another draw
            has. So far do draws repeat each other.
    """

    kind: str
    load: Callable
    num_experts: int = 8
    family: str = ""
    name: str = ""
    overlap: float = 0.0


@dataclasses.dataclass(frozen=True)
class Table:
    """Arrays of a problem.

    Args:
        splits: Training, validation and test: pairs of inputs and labels, NaN if a
            label is missing.
        binary: For each task, whether its labels are 0 and 1, and not numbers.
        groups: The known groups: of each task, or for routers of each example.
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


def drawn(count, seed, sizes):
    """Draw rows for training, validation and test: three arrays of indices.

    They are up to `sizes`, or in the ratio 3 : 1 : 1.
    """
    order = np.random.default_rng(seed).permutation(count)
    if sum(sizes) > count:
        sizes = 3 * count // 5, count // 5
    return np.split(order, np.cumsum(sizes)[:3])[:3]


def apart(count, seed, sizes):
    """The same, but no trial sees a row of a reported test.

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


def split_rows(x, y, binary, seed, groups=None, draw=drawn, sizes=SIZES):
    """A `Table` of rows that a function such as `drawn` draws."""
    parts = draw(len(x), seed, sizes)
    return standardized([(x[part], y[part]) for part in parts], binary, groups)


split_apart = functools.partial(split_rows, draw=apart)


def as_numbers(frame, most=12):
    """Columns as numbers; texts are one column for each of their frequent values.

    Numbers that are missing are NaN.
    """
    frame = frame.copy()
    for name in frame.select_dtypes(exclude="number"):
        frequent = frame[name].value_counts().index[:most]
        frame[name] = frame[name].where(frame[name].isin(frequent)).astype(object)
    return pd.get_dummies(frame, dtype="float32").to_numpy("float32")


def arff(file, num_tasks, split=split_rows):
    """The problem of an ARFF table whose last columns are regression labels."""

    def load(seed, folder):
        from scipy.io.arff import loadarff  # A dependency of JAX.

        path = pathlib.Path(folder) / "uci_multitarget" / file
        frame = pd.DataFrame(loadarff(path)[0])
        x = as_numbers(frame.iloc[:, :-num_tasks])
        y = frame.iloc[:, -num_tasks:].to_numpy("float32")
        return split(x, y, [False] * num_tasks, seed)

    return load


def adult(seed, folder, split=split_rows):
    """UCI Adult: five facts about a person, from the others."""
    path = pathlib.Path(folder) / "adult" / "adult.data.gz"
    with gzip.open(path, "rt") as lines:
        frame = pd.read_csv(lines, header=None, skipinitialspace=True)
    labels = [
        frame[14] == ">50K",
        frame[5] == "Never-married",
        frame[9] == "Male",
        frame[12] > 40,
        frame[4] >= 13,  # Years of education.
    ]
    # Relationship says who is married, and who is a man.
    features = as_numbers(frame.drop(columns=[2, 3, 4, 5, 7, 9, 12, 14]))
    y = np.stack(labels, axis=1)
    return split(features, y, [True] * 5, seed)


def census(seed, folder, num_tasks=24, split=split_rows):
    """Census-Income: facts about a person, from age, sex and work."""
    path = pathlib.Path(folder) / "census_kdd" / "census-income.test.gz"
    with gzip.open(path, "rt") as lines:
        frame = pd.read_csv(lines, header=None, skipinitialspace=True, nrows=40_000)
    given = [0, 1, 4, 5, 12, 16, 17, 18, 30, 38, 39]
    columns = [
        (frame[column] == value).to_numpy()
        for column in frame.columns.difference([*given, 24])
        for value in frame[column].value_counts().index[:3]
    ]
    kept: list[np.ndarray] = []
    for column in columns:
        # Facts that are neither rare nor the opposite of another one.
        if 0.1 < column.mean() < 0.9 and all(
            abs(np.corrcoef(column, other)[0, 1]) < 0.95 for other in kept
        ):
            kept.append(column)
    y = np.stack(kept[:num_tasks], axis=1)
    binary = [True] * y.shape[1]
    return split(as_numbers(frame[given]), y, binary, seed)


def films(seed, folder, num_tasks=32, num_inputs=100, split=split_rows):
    """MovieLens: the ratings of some films, from a user's ratings of 100 others."""
    path = pathlib.Path(folder) / "ml-latest-small" / "ratings.csv"
    table = pd.read_csv(path).pivot_table("rating", "userId", "movieId")
    order = table.notna().sum().sort_values(ascending=False).index
    order = order[: num_tasks + num_inputs]
    # Tasks are spread over the most rated films.
    tasks = order[:: len(order) // num_tasks][:num_tasks]
    y = table[tasks].to_numpy("float32")
    inputs = table[order.difference(tasks)]
    inputs = inputs.sub(inputs.mean(axis=1), axis=0).fillna(0.0)
    known = (~np.isnan(y)).sum(axis=1) >= 4
    return split(inputs.to_numpy()[known], y[known], [False] * num_tasks, seed)


@functools.cache
def small_images(name, folder, size=7, part="train"):
    """Images with means of pixels, `(count, size**2)`, and their classes."""
    data_dir = str(pathlib.Path(folder) / name)
    data = getattr(research.papers.data.load(name, data_dir=data_dir, seed=0), part)
    count, step = len(data.x), 28 // size
    pixels = data.x.reshape(count, size, step, size, step).mean((2, 4))
    return pixels.reshape(count, -1), np.asarray(data.y)[..., 0].astype(int)
