"""Figure 5: how the losses of many runs are spread."""

import dataclasses
import math

import numpy as np

from dselectk_keras.experiments.compare import all_hold, is_positive
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.experiments.results import format_mean
from papers import citations, drawing
from papers.mmoe._synthetic import MODELS, TICKS, median
from papers.mmoe._three_models import ThreeModels, arm_of

COMPARABLE = 1.5  # The lowest losses differ by no more than this factor.


@dataclasses.dataclass(frozen=True)
class Fig5(ThreeModels):
    """The losses at the end of the runs of Figure 4, one by one."""

    name = "mmoe-fig5"
    title = "with a gate for each task, training ends well more reliably"
    paper = citations.MMOE
    where = "Figure 5"
    about = (
        "The runs of [Figure 4](mmoe-fig4.md) once more: not the mean of their losses "
        "but how they are spread. Each run has initial weights of its own; a wide "
        "histogram says that training often ends in a poor local minimum."
    )

    def report(self, results):
        ordered = sorted(self.correlations)
        losses = {
            p: {model: results.values(arm_of(model, p), "loss") for model in MODELS}
            for p in ordered
        }
        spreads = {
            p: {model: spread(values) for model, values in found.items()}
            for p, found in losses.items()
        }
        caption = (
            "Histograms of the losses at the end of all runs, by the cosine p of the "
            "tasks' weights; the dashed lines are medians."
        )
        return Report(
            [
                _shared_bottom_is_widest(spreads),
                _omoe_widens(spreads, ordered),
                _lowest_are_comparable(losses),
            ],
            [_table(losses, spreads)],
            [Picture("histograms", caption, lambda: draw(losses))],
        )


def spread(losses):
    """How far losses lie from their median: the median of the distances.

    Args:
        losses: An array.

    Returns:
        The distance, and its standard error: NaN for a single loss.
    """
    return median(np.abs(losses - np.median(losses)))


def _wider(spreads, model, other):
    """Whether a model's losses are spread wider than another's."""
    (wide, error), (narrow, its_error) = spreads[model], spreads[other]
    return is_positive(wide - narrow, math.hypot(error, its_error))


def _shared_bottom_is_widest(spreads):
    return Claim(
        "At every correlation the losses of Shared-Bottom are spread much wider than "
        "those of OMoE and MMoE.",
        f"Median distances from the median: {_by_model(spreads, _mean)}.",
        all_hold(
            _wider(found, "Shared-Bottom", other)
            for found in spreads.values()
            for other in ("OMoE", "MMoE")
        ),
    )


def _omoe_widens(spreads, ordered):
    low, high = spreads[ordered[0]], spreads[ordered[-1]]
    alike = _wider(high, "OMoE", "MMoE") is not True
    return Claim(
        "OMoE is as robust as MMoE where the tasks are the same, and less so where "
        "they are less correlated.",
        f"Median distances of OMoE and MMoE: {_mean(high['OMoE'])} and "
        f"{_mean(high['MMoE'])} at p = {ordered[-1]:g}, {_mean(low['OMoE'])} and "
        f"{_mean(low['MMoE'])} at p = {ordered[0]:g}.",
        all_hold([alike, _wider(low, "OMoE", "MMoE")]),
    )


def _lowest_are_comparable(losses):
    lowest = {
        p: {model: float(values.min()) for model, values in found.items()}
        for p, found in losses.items()
    }
    return Claim(
        "The lowest losses of the three models are comparable.",
        f"The best of all runs: {_by_model(lowest, '{:.3g}'.format)}. Comparable is up "
        f"to {COMPARABLE:g} times the lowest.",
        all(
            max(low.values()) <= COMPARABLE * min(low.values())
            for low in lowest.values()
        ),
    )


def _by_model(numbers, write):
    """What there is of each model at each correlation, to be read."""
    return "; ".join(
        f"{', '.join(f'{write(value)} ({model})' for model, value in found.items())} "
        f"at p = {p:g}"
        for p, found in numbers.items()
    )


def _mean(found):
    mean, error = found
    return format_mean(mean, error, 2)


def _table(losses, spreads):
    rows = [
        [
            f"{p:g}",
            model,
            len(values),
            *(f"{find(values):.3g}" for find in (np.min, np.median, np.max)),
            _mean(spreads[p][model]),
        ]
        for p, found in losses.items()
        for model, values in found.items()
    ]
    return Table(
        "Losses at the end of the runs",
        ["p", "model", "runs", "lowest", "median", "highest", "distance from median"],
        rows,
        "The paper draws histograms of 200 runs and prints no numbers.",
    )


def draw(losses):
    """Histograms: a row for each model, a column for each correlation.

    Args:
        losses: A dict from correlations to dicts from models to arrays.

    Returns:
        A matplotlib figure.
    """
    figure, axes = drawing.panels(
        len(MODELS), len(losses), 3.6, sharex=True, sharey=True
    )
    every = np.concatenate([v for found in losses.values() for v in found.values()])
    # A run that is stuck lies far off: its distance is shown by factors.
    bins = np.geomspace(every.min(), every.max(), 41)
    for column, (p, found) in zip(axes.T, losses.items(), strict=True):
        drawing.label(column[0], title=f"p = {p:g}")
        drawing.label(column[-1], x="loss at the end")
        for number, (ax, values) in enumerate(zip(column, found.values(), strict=True)):
            ax.hist(values, bins=bins, color=drawing.COLORS[number])
            ax.axvline(np.median(values), color=drawing.TEXT, lw=0.8, ls=(0, (3, 2)))
            drawing.tidy(ax)
    axes[0, 0].set_xscale("log")
    ticks = [tick for tick in TICKS if bins[0] <= tick <= bins[-1]]
    for ax in axes[-1]:
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    for ax, model in zip(axes[:, 0], MODELS, strict=True):
        drawing.label(ax, y=f"{model}\nruns")
    return figure
