"""The problems on which routers are compared: inputs with regions, images, tables."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable

import numpy as np

import research.papers.data
from research.benches.gate_comparison import problems as tables
from research.benches.gate_comparison.tables import (
    apart,
    split_apart,
    standardized,
)

SIZES = (4_000, 1_500, 1_500)  # Examples for training, validation and test.
SPLIT = functools.partial(split_apart, sizes=SIZES)
FEATURES, TAGS = 8, 8


@dataclasses.dataclass(frozen=True)
class Problem:
    """Data, and the sizes of a model for them.

    Args:
        kind: `"regions"` or `"no regions"` of problems that are generated, `"images"`,
            whose labels depend on a domain, or `"real"`.
        load: A function of a seed and the folder of the data that returns a `Table`,
            whose `groups` are the regions of the examples of each split, if known.
        num_experts: The number of experts.
        hidden: The units of a hidden layer of the router; none if 0.
        classes: The number of classes; 0 for tasks with numbers and yes-no labels.
    """

    kind: str
    load: Callable
    num_experts: int = 8
    hidden: int = 0
    classes: int = 0


def by_tag(noise=0.3, falling=1.0):
    """Regions that a noisy tag says; each has `falling` times the one before."""

    def draw(rng, rows, count):
        shares = falling ** np.arange(count)
        regions = rng.choice(count, size=rows, p=shares / shares.sum())
        tags = np.eye(count)[regions] + noise * rng.normal(size=(rows, count))
        return np.hstack([rng.normal(size=(rows, FEATURES)), tags]), regions

    return draw


def by_signs(rng, rows, count):
    """Regions between planes through 0."""
    x = rng.normal(size=(rows, FEATURES + TAGS))
    bits = x @ rng.normal(size=(x.shape[1], int(np.log2(count)))) > 0
    return x, as_numbers(bits)


def in_clusters(rng, rows, count):
    """Regions around centers."""
    regions = rng.integers(count, size=rows)
    centers = 1.5 * rng.normal(size=(count, FEATURES + TAGS))
    return centers[regions] + rng.normal(size=(rows, FEATURES + TAGS)), regions


def by_products(rng, rows, count):  # noqa: ARG001
    """Eight regions by signs of products of two projections: no planes part them."""
    x = rng.normal(size=(rows, FEATURES + TAGS))
    one, two = np.split(x @ rng.normal(size=(x.shape[1], 6)), 2, axis=1)
    return x, as_numbers(one * two > 0)


def as_numbers(bits):
    """The numbers of rows of bits."""
    return bits @ 2 ** np.arange(bits.shape[1])


def waves(rng, x, count, directions=2):
    """Functions of the inputs, `(rows, count)`: sums of sines of projections."""
    kernel = rng.normal(size=(FEATURES, count * directions)) / FEATURES**0.5
    phases = rng.uniform(0, 2 * np.pi, size=count * directions)
    sines = np.sin(x[:, :FEATURES] @ kernel + phases)
    return sines.reshape(len(x), count, directions).sum(axis=2)


def generated(draw, num_regions=8, noise=0.1, shared=0.0, tasks=1, num_train=SIZES[0]):
    """A problem in which each region of the inputs has functions of its own.

    Args:
        draw: A function of a generator and the numbers of rows and of regions that
            returns inputs and regions.
        num_regions: The number of regions.
        noise: The deviation of the labels' noise, over that of the functions.
        shared: The weight of a function that all regions share.
        tasks: The number of tasks. Every second one has yes-no labels.
        num_train: The number of training examples.
    """

    def load(seed, folder):  # noqa: ARG001
        rng = np.random.default_rng(seed)
        sizes = num_train, *SIZES[1:]
        x, regions = draw(rng, sum(sizes), num_regions)
        own = waves(rng, x, num_regions * tasks).reshape(len(x), num_regions, tasks)
        y = own[np.arange(len(x)), regions]
        y = (1 - shared) * y + shared * waves(rng, x, tasks)
        y += noise * y.std(axis=0) * rng.normal(size=y.shape)
        binary = np.arange(tasks) % 2 == 1
        y = np.where(binary, y > 0, y)
        parts = [np.split(each, np.cumsum(sizes)[:2]) for each in (x, y, regions)]
        splits = list(zip(*parts[:2], strict=True))
        return standardized(splits, binary, parts[2])

    return load


def without_regions(seed, folder):  # noqa: ARG001
    """One function of all inputs, of more directions than that of a region."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sum(SIZES), FEATURES + TAGS))
    y = waves(rng, x, 1, directions=8)
    y += 0.1 * y.std() * rng.normal(size=y.shape)
    parts = [np.split(each, np.cumsum(SIZES)[:2]) for each in (x, y)]
    return standardized([*zip(*parts, strict=True)], [False])


def images(name, domains=4, size=7):
    """Images whose classes each domain has in another order; the domain is an input."""

    @functools.cache
    def read(folder):
        data = research.papers.data.load(
            name, data_dir=str(pathlib.Path(folder) / name), seed=0
        )
        step = 28 // size
        shape = len(data.train.x), size, step, size, step
        pixels = data.train.x.reshape(shape).mean((2, 4)).reshape(len(data.train.x), -1)
        return pixels, np.asarray(data.train.y)[..., 0].astype(int)

    def load(seed, folder):
        pixels, classes = read(folder)
        rows = np.concatenate(apart(len(pixels), seed, SIZES))
        rng = np.random.default_rng(seed)
        regions = rng.integers(domains, size=len(rows))
        orders = rng.permuted(np.tile(np.arange(10), (domains, 1)), axis=1)
        x = np.hstack([pixels[rows], np.eye(domains)[regions]])
        y = orders[regions, classes[rows]][:, None]
        parts = [np.split(each, np.cumsum(SIZES)[:2]) for each in (x, y, regions)]
        splits = list(zip(*parts[:2], strict=True))
        # Classes stay as they are, as yes-no labels do.
        return standardized(splits, [True], parts[2])

    return load


def adult(seed, folder):
    """The five facts of `gate_comparison`, with more examples."""
    return tables.adult(seed, folder, SPLIT)


def census(seed, folder):
    """Eight facts of those of `gate_comparison`, with more examples."""
    return tables.census(seed, folder, 8, SPLIT)


def films(seed, folder):
    """The ratings of eight films, some missing."""
    return tables.films(seed, folder, 8, split=split_apart)


PROBLEMS = {
    "tag": Problem("regions", generated(by_tag())),
    "adult": Problem("real", adult),
    "signs": Problem("regions", generated(by_signs)),
    "no regions": Problem("no regions", without_regions),
    "shared part": Problem("regions", generated(by_tag(), shared=0.5)),
    "energy": Problem("real", tables.arff("enb.arff", 2, split_apart)),
    "clusters": Problem("regions", generated(in_clusters)),
    "films": Problem("real", films),
    "much noise": Problem("regions", generated(by_tag(), noise=1.0)),
    "census": Problem("real", census),
    "products": Problem("regions", generated(by_products)),
    "digits": Problem("images", images("mnist"), classes=10),
    "unbalanced": Problem("regions", generated(by_tag(falling=0.6))),
    "solar flares": Problem("real", tables.arff("sf2.arff", 3, split_apart)),
    "several tasks": Problem("regions", generated(by_tag(), tasks=6)),
    "300 examples": Problem("regions", generated(by_tag(), num_train=300)),
    "products, deeper router": Problem("regions", generated(by_products), hidden=32),
    "clothes": Problem("images", images("fashion_mnist"), classes=10),
    "32 clusters": Problem("regions", generated(in_clusters, 32), 32),
}
