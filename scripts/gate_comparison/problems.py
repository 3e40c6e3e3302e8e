"""The problems on which gates are compared: their data, and the sizes of the model."""

import dataclasses
import gzip
import pathlib
from collections.abc import Callable

import numpy as np
import pandas as pd

from dselectk_keras import datasets
from dselectk_keras.datasets import Dataset, Split
from papers import data as papers_data

EMBEDDING = 8  # The width of an id's embedding.


@dataclasses.dataclass(frozen=True)
class Problem:
    """A data set, and the sizes of a model for it.

    Args:
        load: A function of the number of training examples, a seed and the folder of
            the data that returns a `Dataset`.
        num_experts: The number of experts.
        num_nonzeros: The number of experts that a sparse gate may choose per task, k.
        units: Width of an expert.
        epochs: Number of epochs.
        real: Whether the data are read from files.
    """

    load: Callable
    num_experts: int = 8
    num_nonzeros: int = 2
    units: int = 32
    epochs: int = 30
    real: bool = True


def generated(name, **options):
    """A function that generates a data set of the package."""

    def load(num_train, seed, folder):  # noqa: ARG001
        evaluated = {"num_validation": num_train // 4, "num_test": num_train // 4}
        return datasets.load(
            name, num_train=num_train, seed=seed, **evaluated, **options
        )

    return load


def from_files(name, folder, **options):
    """A function that reads a data set of the package or of the papers."""

    def load(num_train, seed, data):
        sizes = {"num_validation": num_train // 4, "num_test": num_train // 4}
        return papers_data.load(
            name,
            num_train=num_train,
            seed=seed,
            data_dir=pathlib.Path(data) / folder,
            **sizes,
            **options,
        )

    return load


def table(file, num_tasks):
    """A function that reads an ARFF table whose last columns are regression labels."""

    def load(num_train, seed, data):  # noqa: ARG001
        frame = read_arff(pathlib.Path(data) / "uci_multitarget" / file)
        labels = frame.iloc[:, -num_tasks:].astype("float32")
        features = frame.iloc[:, :-num_tasks]
        return split_table(features, labels, ["regression"] * num_tasks, seed)

    return load


def adult(num_train, seed, data):
    """UCI Adult: income above 50,000 dollars, and never married."""
    with gzip.open(pathlib.Path(data) / "adult" / "adult.data.gz", "rt") as lines:
        frame = pd.read_csv(lines, header=None, skipinitialspace=True)
    frame = frame.sample(n=min(len(frame), num_train * 3 // 2), random_state=seed)
    labels = pd.DataFrame(
        {"income": frame[14] == ">50K", "unmarried": frame[5] == "Never-married"}
    )
    # Relationship says who is married.
    features = frame.drop(columns=[2, 5, 7, 14])
    return split_table(features, labels.astype("float32"), ["binary"] * 2, seed)


def read_arff(path):
    """Read an ARFF file as a data frame; columns that are not numeric are texts."""
    names, kinds, rows = [], [], []
    with path.open(encoding="utf-8") as lines:
        for line in map(str.strip, lines):
            if line.lower().startswith("@attribute"):
                _, name, kind = line.split(maxsplit=2)
                names.append(name)
                kinds.append(kind.strip().lower())
            elif line and line[0] not in "@%":
                rows.append([cell.strip() for cell in line.split(",")])
    frame = pd.DataFrame(rows, columns=names)
    for name, kind in zip(names, kinds, strict=True):
        if kind in {"numeric", "real", "integer"}:
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame


def split_table(features, labels, kinds, seed):
    """A `Dataset` of a table: 60 % for training, 20 % each for validation and test."""
    x = pd.get_dummies(features, dtype="float32").fillna(0.0).to_numpy("float32")
    y = labels.to_numpy("float32")
    order = np.random.default_rng(seed).permutation(len(x))
    bounds = [int(0.6 * len(x)), int(0.8 * len(x))]
    parts = np.split(order, bounds)
    mean, scale = x[parts[0]].mean(axis=0), x[parts[0]].std(axis=0)
    x = (x - mean) / np.where(scale > 0, scale, 1.0)
    train, validation, test = (Split(x[part], y[part]) for part in parts)
    names = tuple(map(str, labels.columns))
    return Dataset(train, validation, test, names, tuple(kinds))


PROBLEMS = {
    **{
        f"C.1, {count} tasks": Problem(
            generated("synthetic_moe", num_tasks=count), count // 4, 4, 4, real=False
        )
        for count in (16, 32, 64, 128)
    },
    **{
        f"correlated tasks, p = {p}": Problem(
            generated("correlated_tasks", p=p), real=False
        )
        for p in (0.5, 0.9)
    },
    "census": Problem(from_files("census_income", "census_kdd", features="nominal")),
    "adult": Problem(adult),
    "MovieLens": Problem(
        from_files("movielens", "ml-latest-small", version="latest-small"), epochs=10
    ),
    "enb": Problem(table("enb.arff", 2), epochs=200),
    "slump": Problem(table("slump.arff", 3), epochs=300),
    "sf1": Problem(table("sf1.arff", 3), epochs=100),
    "sf2": Problem(table("sf2.arff", 3), epochs=60),
    "Multi-MNIST": Problem(from_files("multi_mnist", "mnist"), epochs=20),
    "Multi-Fashion": Problem(
        from_files("multi_mnist", "fashion_mnist", images="fashion_mnist"), epochs=20
    ),
}
