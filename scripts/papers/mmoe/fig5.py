"""Figure 5: how the losses of many runs are spread."""

import dataclasses
import math

import numpy as np

from experiments.compare import all_hold, is_positive
from experiments.report import Claim, Picture, Question, Report, Table
from experiments.results import format_mean
from papers import citations, drawing
from papers.mmoe._synthetic import MODELS, RESAMPLES, TICKS, median
from papers.mmoe._three_models import ThreeModels, arm_of, three_models_protocol

REMARK = (
    "The standard errors of a standard deviation and of a median distance come from "
    "resampling the runs. A single run in a poor minimum can decide a standard "
    "deviation."
)
COMPARABLE = 1.5  # Numbers are comparable if they differ by no more than this factor.


@dataclasses.dataclass(frozen=True)
class Fig5(ThreeModels):
    """The losses at the end of the runs of Figure 4, one by one."""

    name = "mmoe-fig5"
    title = "how far the losses of many runs of three models are spread"
    paper = citations.MMOE
    where = "Figure 5"
    about = (
        "The losses at the end of the runs of [Figure 4](mmoe-fig4.md), one by one. "
        "Each run has its own initial weights. The paper takes a wide histogram for a "
        "sign that training often ends in a poor local minimum."
    )

    def report(self, results):
        ordered = sorted(self.correlations)
        losses = {
            p: {model: results.values(arm_of(model, p), "loss") for model in MODELS}
            for p in ordered
        }
        caption = (
            "Histograms of the losses at the end of all runs, by the cosine p of the "
            "tasks' weights; the dashed lines are medians."
        )
        return Report(
            [
                _shared_bottom_is_widest(losses),
                _omoe_widens(losses, ordered),
                _lowest_are_comparable(losses),
            ],
            [_table(losses)],
            [Picture("histograms", caption, lambda: draw(losses))],
            [REMARK],
            [_robust(losses)],
            three_models_protocol(self),
        )


def deviation(losses):
    """The standard deviation of losses, and its standard error.

    Args:
        losses: An array.

    Returns:
        Two numbers: NaN for a single loss.
    """
    if len(losses) < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(losses), size=(RESAMPLES, len(losses)))
    error = losses[drawn].std(axis=1, ddof=1).std()
    return float(losses.std(ddof=1)), float(error)


def spread(losses):
    """How far losses lie from their median: the median of the distances.

    Args:
        losses: An array.

    Returns:
        The distance, and its standard error: NaN for a single loss.
    """
    return median(np.abs(losses - np.median(losses)))


def _wider(losses, others):
    """Whether some losses have a higher standard deviation than others."""
    (wide, error), (narrow, its_error) = deviation(losses), deviation(others)
    return is_positive(wide - narrow, math.hypot(error, its_error))


def _alike(losses, others):
    """Whether the standard deviations of losses and of others are within a factor."""
    mine, its = deviation(losses)[0], deviation(others)[0]
    if max(mine, its) <= COMPARABLE * min(mine, its):
        return True
    # Larger by chance, perhaps; or smaller, which is as robust at least.
    wider = _wider(losses, others)
    return None if wider is None else not wider


def _shared_bottom_is_widest(losses):
    found = {
        p: {model: deviation(values) for model, values in by_model.items()}
        for p, by_model in losses.items()
    }
    return Claim(
        "At every correlation the variance of Shared-Bottom's losses is much larger "
        "than those of OMoE and MMoE.",
        f"Standard deviations: {_by_model(found, _mean)}.",
        all_hold(
            _wider(by_model["Shared-Bottom"], by_model[other])
            for by_model in losses.values()
            for other in ("OMoE", "MMoE")
        ),
        "Section 5.2, first observation",
    )


def _omoe_widens(losses, ordered):
    low, high = losses[ordered[0]], losses[ordered[-1]]
    texts = [
        f"{_mean(deviation(found['OMoE']))} and {_mean(deviation(found['MMoE']))} at "
        f"p = {p:g}"
        for p, found in ((ordered[-1], high), (ordered[0], low))
    ]
    holds = [
        _alike(high["OMoE"], high["MMoE"]),
        _wider(low["OMoE"], high["OMoE"]),
        _wider(low["OMoE"], low["MMoE"]),
    ]
    return Claim(
        "OMoE is as robust as MMoE if the tasks are the same, and clearly less robust "
        f"at p = {ordered[0]:g}: than it was, and than MMoE. (As robust: here, the "
        f"standard deviations are within a factor of {COMPARABLE:g}.)",
        f"Standard deviations of OMoE and MMoE: {', '.join(texts)}.",
        all_hold(holds),
        "Section 5.2, second observation",
    )


def _lowest_are_comparable(losses):
    lowest = {
        p: {model: float(values.min()) for model, values in found.items()}
        for p, found in losses.items()
    }
    return Claim(
        "The lowest losses of the three models are comparable.",
        f"The best of all runs: {_by_model(lowest, '{:.3g}'.format)}. Comparable means "
        f"at most {COMPARABLE:g} times the lowest.",
        all(
            max(low.values()) <= COMPARABLE * min(low.values())
            for low in lowest.values()
        ),
        "Section 5.2, third observation",
    )


def _robust(losses):
    found = {
        p: {model: spread(values) for model, values in by_model.items()}
        for p, by_model in losses.items()
    }
    return Question(
        "How far are the losses from their median, by the median distance, which a "
        "single poor run does not move?",
        f"{_by_model(found, _mean)}.",
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


def _table(losses):
    rows = [
        [
            f"{p:g}",
            model,
            len(values),
            *(f"{find(values):.3g}" for find in (np.min, np.median, np.max)),
            _mean(deviation(values)),
            _mean(spread(values)),
        ]
        for p, found in losses.items()
        for model, values in found.items()
    ]
    return Table(
        "Losses at the end of the runs",
        [
            "p",
            "model",
            "runs",
            "lowest",
            "median",
            "highest",
            "standard deviation",
            "distance from median",
        ],
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
            drawing.tidy_axes(ax)
    axes[0, 0].set_xscale("log")
    ticks = [tick for tick in TICKS if bins[0] <= tick <= bins[-1]]
    for ax in axes[-1]:
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    for ax, model in zip(axes[:, 0], MODELS, strict=True):
        drawing.label(ax, y=f"{model}\nruns")
    return figure
