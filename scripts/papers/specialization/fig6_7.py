"""Figures 6 and 7: which experts the images use, and how surely."""

import dataclasses

import numpy as np

from dselectk_keras.experiments.compare import (
    difference,
    format_gap,
    is_positive,
    standard_error,
)
from dselectk_keras.experiments.report import Claim, Picture, Report
from papers import citations, drawing
from papers.specialization import _ways
from papers.specialization._images import NAMES
from papers.specialization._tables import draw_table
from papers.specialization._ways import Ways


@dataclasses.dataclass(frozen=True)
class Fig6And7(Ways):
    """The use of the experts in the runs of Table 2."""

    name = "specialization-fig6-7"
    title = "which experts the images use, and how surely"
    paper = citations.SPECIALIZATION
    where = "Figures 6 and 7"
    about = (
        "The runs of [Table 2](specialization-table2.md) once more: how the images are "
        "spread over the five experts, what share of each class goes to which expert, "
        "and how large the largest weight of an image is."
    )

    def report(self, results):
        claims = [self._evens_out(results, data) for data in self.datasets]
        pictures = []
        for data in self.datasets:
            name, slug = NAMES[data], data.replace("_", "-")
            pictures += [
                Picture(
                    f"usage-{slug}",
                    f"{name}: the mean weight of each expert over the test images, "
                    "from the most used expert to the least, with its standard error "
                    "over the runs. The line is an equal share.",
                    lambda data=data: draw_usage(results, data, self.shown),
                ),
                Picture(
                    f"tables-{slug}",
                    f"{name}: the share of each class that chooses each expert, in the "
                    "run of seed 0 of each way. Experts are in the order of the "
                    "classes they get.",
                    lambda data=data: draw_tables(results, data, self.shown),
                ),
                Picture(
                    f"certainty-{slug}",
                    f"{name}: the largest weight of each test image, in all runs.",
                    lambda data=data: draw_certainty(results, data, self.shown),
                ),
            ]
        return Report(claims, pictures=pictures, notes=NOTES)

    def _evens_out(self, results, data):
        arm, other = (
            _ways.arm_of(data, way) for way in ("original, importance", "original")
        )
        change = difference(results, "utilization_entropy", arm, other)
        with_it = usage(results, data, "original, importance")[0]
        without = usage(results, data, "original")[0]
        return Claim(
            f"{NAMES[data]}: without a penalty some experts get few images; "
            "L_importance gives all of them a like share.",
            "H_u with L_importance minus H_u without: "
            f"{format_gap(*change, decimals=3)} bits. The most used expert "
            f"has {without:.0%} without and {with_it:.0%} with it.",
            is_positive(*change),
        )


NOTES = [
    (
        "The paper's own pictures could not be had when this was made. What is drawn "
        "is what they are about, the use of the experts by way of training, from the "
        "runs of Table 2."
    )
]


def numbers_of(results, data, way, number):
    """A number of each run of a way.

    Args:
        results: A `Results`.
        data: Name of a data set.
        way: Name of a way, or of a student.
        number: Name of the number.

    Returns:
        An array with a row for each run.
    """
    arm, prefix = _ways.place_of(data, way)
    return np.array([run.numbers[prefix + number] for run in results.of(arm)])


def usage(results, data, way):
    """The mean weights of the experts, from the largest on, over the runs.

    Args:
        results: A `Results`.
        data: Name of a data set.
        way: Name of a way, or of a student.

    Returns:
        An array `(n,)`.
    """
    return _sorted_usage(results, data, way).mean(axis=0)


def _sorted_usage(results, data, way):
    return -np.sort(-numbers_of(results, data, way, "usage"), axis=1)


def _panels(ways, height, x_label, y_label):
    """Axes for all ways: a row for each gate, a column for each penalty."""
    figure, axes = drawing.panels(
        -(-len(ways) // 3), 3, height, sharex=True, sharey=True
    )
    for ax, way in zip(axes.flat, ways, strict=False):
        drawing.label(ax, title=way)
    for ax in axes.flat[len(ways) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        drawing.label(ax, x=x_label)
    for ax in axes[:, 0]:
        drawing.label(ax, y=y_label)
    return figure, axes


def draw_usage(results, data, ways):
    """Bars of the experts' mean weights."""
    figure, axes = _panels(ways, 4.2, "expert, by use", "mean weight")
    for ax, way in zip(axes.flat, ways, strict=False):
        runs = _sorted_usage(results, data, way)
        count = runs.shape[1]
        places = np.arange(1, count + 1)
        ax.bar(places, runs.mean(axis=0), 0.75, color=drawing.COLORS[0])
        ax.errorbar(
            places,
            runs.mean(axis=0),
            standard_error(runs),
            fmt="none",
            ecolor=drawing.TEXT,
            elinewidth=0.8,
        )
        ax.axhline(1 / count, color=drawing.COLORS[1], linewidth=0.9, linestyle="--")
        ax.set_xticks(places)
        drawing.tidy(ax)
    return figure


def draw_certainty(results, data, ways):
    """Histograms of the largest weights."""
    figure, axes = _panels(ways, 3.8, "largest weight", "images")
    for ax, way in zip(axes.flat, ways, strict=False):
        counts = numbers_of(results, data, way, "sure").sum(axis=0)
        places = (np.arange(len(counts)) + 0.5) / len(counts)
        shares = counts / counts.sum()
        ax.bar(places, shares, 0.9 / len(counts), color=drawing.COLORS[0])
        last = f"{shares[-1]:.0%} above {places[-1] - 0.5 / len(counts):g}"
        ax.annotate(
            last,
            (0.05, 0.85),
            xycoords="axes fraction",
            fontsize=drawing.SMALL_FONT,
            color=drawing.TEXT,
        )
        ax.set_xlim(0, 1)
        drawing.tidy(ax)
    return figure


def draw_tables(results, data, ways):
    """Expert selection tables of the runs of seed 0."""
    figure, axes = _panels(ways, 6.0, "expert", "class")
    for ax, way in zip(axes.flat, ways, strict=False):
        draw_table(ax, numbers_of(results, data, way, "table")[0])
    return figure
