"""The problems on which routers are compared: inputs with regions, images, tables."""

import dataclasses
import functools

import numpy as np

from research.benches import data
from research.benches.data import (
    adult,
    apart,
    arff,
    census,
    films,
    small_images,
    split_apart,
    standardized,
)

SIZES = (4_000, 1_500, 1_500)  # Examples for training, validation and test.
SPLIT = functools.partial(split_apart, sizes=SIZES)
FEATURES, TAGS = 8, 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(data.Problem):
    """Data, and the sizes of a model for them.

    Its kind is `"regions"` or `"no regions"` if it is generated, `"images"`, whose
    labels depend on a domain, or `"real"`. The `groups` of its `Table` are the regions
    of the examples of each split, if they are known.

    Args:
        hidden: The units of a hidden layer of the router; none if 0.
        classes: The number of classes; 0 for tasks with numbers and yes-no labels.
    """

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
        return in_order(x, y, binary, regions, sizes)

    return load


def without_regions(seed, folder):  # noqa: ARG001
    """One function of all inputs, of more directions than that of a region."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sum(SIZES), FEATURES + TAGS))
    y = waves(rng, x, 1, directions=8)
    y += 0.1 * y.std() * rng.normal(size=y.shape)
    return in_order(x, y, [False])


def images(name, domains=4):
    """Images whose classes each domain has in another order; the domain is an input."""

    def load(seed, folder):
        pixels, classes = small_images(name, folder)
        rows = np.concatenate(apart(len(pixels), seed, SIZES))
        rng = np.random.default_rng(seed)
        regions = rng.integers(domains, size=len(rows))
        orders = rng.permuted(np.tile(np.arange(10), (domains, 1)), axis=1)
        x = np.hstack([pixels[rows], np.eye(domains)[regions]])
        y = orders[regions, classes[rows]][:, None]
        # Classes stay as they are, as yes-no labels do.
        return in_order(x, y, [True], regions)

    return load


def in_order(x, y, binary, regions=None, sizes=SIZES):
    """A `Table` of rows that are in the order of the parts."""
    starts = np.cumsum(sizes)[:2]
    splits = [*zip(np.split(x, starts), np.split(y, starts), strict=True)]
    known = None if regions is None else np.split(regions, starts)
    return standardized(splits, binary, known)


def small(file, num_tasks):
    """A small table, of which all draws have the same rows for test."""
    load = arff(file, num_tasks, split_apart)
    return Problem("real", load, family="small tables", overlap=1.0)


def of_images(name):
    """Images of ten classes."""
    overlap = SIZES[2] / (50_000 // 3)
    return Problem("images", images(name), family="images", classes=10, overlap=overlap)


NAMELESS = {
    "tag": Problem("regions", generated(by_tag())),
    "adult": Problem(
        "real",
        functools.partial(adult, split=SPLIT),
        family="small tables",
        overlap=SIZES[2] / (32_561 // 3),
    ),
    "signs": Problem("regions", generated(by_signs)),
    "no regions": Problem("no regions", without_regions),
    "shared part": Problem("regions", generated(by_tag(), shared=0.5)),
    "energy": small("enb.arff", 2),
    "clusters": Problem("regions", generated(in_clusters)),
    "films": Problem(
        "real", functools.partial(films, num_tasks=8, split=split_apart), overlap=1.0
    ),
    "much noise": Problem("regions", generated(by_tag(), noise=1.0)),
    "census": Problem(
        "real",
        functools.partial(census, num_tasks=8, split=SPLIT),
        overlap=SIZES[2] / (40_000 // 3),
    ),
    "products": Problem("regions", generated(by_products)),
    "digits": of_images("mnist"),
    "unbalanced": Problem("regions", generated(by_tag(falling=0.6))),
    "solar flares": small("sf2.arff", 3),
    "several tasks": Problem("regions", generated(by_tag(), tasks=6)),
    "300 examples": Problem("regions", generated(by_tag(), num_train=300)),
    "products, deeper router": Problem(
        "regions", generated(by_products), family="products", hidden=32
    ),
    "clothes": of_images("fashion_mnist"),
    "32 clusters": Problem("regions", generated(in_clusters, 32), num_experts=32),
}
# Most are alone in their family.
PROBLEMS = {
    name: dataclasses.replace(problem, name=name, family=problem.family or name)
    for name, problem in NAMELESS.items()
}
