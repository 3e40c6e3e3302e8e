"""Figure 5: how the losses of many runs are spread."""

import dataclasses
import functools

import numpy as np

from experiments import drawing
from experiments.judging import bootstrap_gap
from papers.mmoe._synthetic import MODELS, ThreeModels, arm_of, write_losses


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

    def gated(self, results):
        """The losses of OMoE and MMoE at the lowest and the highest correlation."""
        ends = (self.ordered[i] for i in (0, -1))
        return [[losses(results, m, p) for m in ("OMoE", "MMoE")] for p in ends]

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
    """The standard deviation of losses, and its standard error."""
    return bootstrap_gap(functools.partial(np.std, axis=-1), values)[:2]


def spread(values):
    """The median distance of losses from their median, and its standard error."""
    return bootstrap_gap(_spread, values)[:2]


def _spread(values):
    away = np.abs(values - np.median(values, axis=-1, keepdims=True))
    return np.median(away, axis=-1)


def middle(values):
    """The standard deviation of the middle 90 % of losses."""
    low, high = np.quantile(values, (0.05, 0.95), axis=-1, keepdims=True)
    # A single run has no spread, whose logarithm is not finite.
    return np.maximum(np.clip(values, low, high).std(axis=-1), 1e-12)


def wider(values, others):
    """The `Gap` of the logarithm of how much wider losses are spread than others.

    One failed run does not decide it: it is of the middle 90 %. Runs are drawn in
    pairs, because those of one seed have the same data.
    """
    return bootstrap_gap(lambda a, b: np.log(middle(a) / middle(b)), values, others)
