"""Figure 5: how the losses of many runs are spread."""

import dataclasses
import functools
import math

import numpy as np

from experiments import Gap, all_hold, drawing, format_mean
from papers.mmoe._synthetic import (
    MODELS,
    TICKS,
    ThreeModels,
    arm_of,
    median,
    resampled,
)

COMPARABLE = 1.5  # Numbers are comparable if they differ by no more than this factor.


@dataclasses.dataclass(frozen=True)
class Fig5(ThreeModels):
    """The losses at the end of the runs of Figure 4, one by one."""

    name = "mmoe-fig5"
    title = "how far the losses of many runs of three models are spread"
    where = "Figure 5"

    def each(self, results, write):
        """What `write` says of the losses of each model at each correlation."""
        texts = (
            ", ".join(f"{write(losses(results, m, p))} ({m})" for m in MODELS)
            + f" at p = {p:g}"
            for p in self.ordered
        )
        return "; ".join(texts)

    def is_widest(self, results):
        """Whether Shared-Bottom's losses are spread more than those of the others."""
        return all_hold(
            wider(losses(results, "Shared-Bottom", p), losses(results, other, p))
            for p in self.ordered
            for other in ("OMoE", "MMoE")
        )

    def omoe_widens(self, results):
        """Whether OMoE is as robust as MMoE at the highest correlation alone."""
        low, high = self.ordered[0], self.ordered[-1]
        omoe, omoe_high = (losses(results, "OMoE", p) for p in (low, high))
        mmoe, mmoe_high = (losses(results, "MMoE", p) for p in (low, high))
        return all_hold(
            [alike(omoe_high, mmoe_high), wider(omoe, omoe_high), wider(omoe, mmoe)]
        )

    def lowest_alike(self, results):
        """Whether the lowest losses of the models are comparable."""
        lows = [[losses(results, m, p).min() for m in MODELS] for p in self.ordered]
        return all(max(low) <= COMPARABLE * min(low) for low in lows)

    def draw_histograms(self, results):
        """Histograms: a row for each model, a column for each correlation."""
        shape = len(MODELS), len(self.ordered)
        figure, axes = drawing.panels(*shape, 3.6, sharex=True, sharey=True)
        arms = self.arms
        every = np.concatenate([results.values(arm, "loss") for arm in arms])
        # A run that is stuck lies far off: its distance is shown by factors.
        bins = np.geomspace(every.min(), every.max(), 41)
        for column, p in zip(axes.T, self.ordered, strict=True):
            drawing.label(column[0], title=f"p = {p:g}")
            drawing.label(column[-1], x="loss at the end")
            for ax, model, color in zip(column, MODELS, drawing.COLORS, strict=False):
                values = losses(results, model, p)
                ax.hist(values, bins=bins, color=color)
                ax.axvline(
                    np.median(values), color=drawing.TEXT, lw=0.8, ls=(0, (3, 2))
                )
                drawing.tidy_axes(ax)
        axes[0, 0].set_xscale("log")
        ticks = [tick for tick in TICKS if bins[0] <= tick <= bins[-1]]
        for ax in axes[-1]:
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
        for ax, model in zip(axes[:, 0], MODELS, strict=True):
            drawing.label(ax, y=f"{model}\nruns")
        return figure


def losses(results, model, p):
    """The losses at the end of the runs of a model."""
    return results.values(arm_of(model, p), "loss")


def deviation(values):
    """The standard deviation of losses, and its standard error; NaN of a single one."""
    if len(values) < 2:
        return math.nan, math.nan
    return resampled(functools.partial(np.std, ddof=1), values)


def spread(values):
    """The median distance of losses from their median, and its standard error."""
    return median(np.abs(values - np.median(values)))


def wider(values, others):
    """Whether some losses have a higher standard deviation than others."""
    (wide, error), (narrow, its_error) = deviation(values), deviation(others)
    return Gap(wide - narrow, math.hypot(error, its_error)).is_positive()


def alike(values, others):
    """Whether the standard deviations of losses and of others are within a factor."""
    mine, its = deviation(values)[0], deviation(others)[0]
    if max(mine, its) <= COMPARABLE * min(mine, its):
        return True
    # Larger by chance, perhaps; or smaller, which is as robust at least.
    more = wider(values, others)
    return None if more is None else not more


def write(found):
    """A number and its error, as text."""
    mean, error = found
    return format_mean(mean, error, 2)
