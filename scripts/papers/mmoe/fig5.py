"""Figure 5: how the losses of many runs are spread."""

import dataclasses
import functools
import math

import numpy as np

from experiments import Gap, drawing
from papers.mmoe._synthetic import MODELS, ThreeModels, arm_of, resampled, write_losses

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

    def draw_histograms(self, results):
        """Histograms: a row for each model, a column for each correlation."""
        shape = len(MODELS), len(self.ordered)
        figure, axes = drawing.panels(*shape, 3.6, sharex=True, sharey=True)
        every = np.concatenate([results.values(arm, "loss") for arm in self.arms])
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
        for ax in axes[-1]:
            write_losses(ax.xaxis)
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
    return resampled(np.median, np.abs(values - np.median(values)))


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
