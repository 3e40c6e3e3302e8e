"""Figure 5: how the losses of many runs are spread."""

import dataclasses
import functools
import itertools

import numpy as np

from research.engine import Claim, Untestable, all_positive, drawing
from research.engine.judging import bootstrap_gap
from research.engine.results import format_mean
from research.papers.mmoe._synthetic import MODELS, ThreeModels, arm_of, write_losses


@dataclasses.dataclass(frozen=True)
class Fig5(ThreeModels):
    """The losses at the end of the runs of Figure 4, one by one."""

    name = "mmoe-fig5"
    title = "how far the losses of many runs of three models are spread"
    where = "Figure 5"
    looks = 3

    def each(self, results, write):
        """Texts of `write` for the losses of each model at each correlation."""
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

    def spreads(self, results):
        """Spread of these losses, as text."""
        texts = (
            " and ".join(f"{middle(values):.2g}" for values in both)
            for both in self.gated(results)
        )
        ends = zip(reversed([*texts]), (self.ordered[-1], self.ordered[0]), strict=True)
        found = ", ".join(f"{both} at p = {p:g}" for both, p in ends)
        return f"Winsorized standard deviations of OMoE and MMoE: {found}."

    def is_less_robust(self, results):
        """Test that OMoE is less robust than it was, and than MMoE, as tasks part."""
        low, high = self.gated(results)
        parted = wider(*low)
        return all_positive(
            [wider(low[0], high[0]), parted, parted.minus(wider(*high))]
        )

    @property
    def claims(self):
        yield Claim(
            "variance",
            lambda r: all_positive(
                wider(losses(r, "Shared-Bottom", p), losses(r, m, p))
                for p in self.ordered
                for m in ("OMoE", "MMoE")
            ),
        )
        yield Claim("robust", self.is_less_robust, {"low": self.ordered[0]})
        why = "The paper says no margin, and ours would be chosen after the runs."
        yield Claim("lowest", Untestable(why))

    def table_losses(self, results):
        yield (
            "p | model | runs | lowest | median | highest | standard deviation | "
            "distance from median"
        )
        for p, model in itertools.product(self.ordered, MODELS):
            found = losses(results, model, p)
            points = (f"{each:.3g}" for each in np.quantile(found, (0, 0.5, 1)))
            widths = (format_mean(*width(found), 2) for width in (deviation, spread))
            yield [f"{p:g}", model, len(found), *points, *widths]

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
    """The standard deviation of losses, winsorized at 5 % and 95 %."""
    low, high = np.quantile(values, (0.05, 0.95), axis=-1, keepdims=True)
    # A single run has no spread, whose logarithm is not finite.
    return np.maximum(np.clip(values, low, high).std(axis=-1), 1e-12)


def wider(values, others):
    """The `Gap` of the logarithm of how much wider losses are spread than others.

    One failed run does not decide it: they are winsorized. Runs are drawn in
    pairs, because those of one seed have the same data.
    """
    return bootstrap_gap(lambda a, b: np.log(middle(a) / middle(b)), values, others)


def widths(values):
    """The standard deviation of losses, winsorized, as text."""
    return f"{middle(values):.2g}"


def lowest(values):
    """The lowest of losses, as text."""
    return f"{values.min():.3g}"


def distances(values):
    """The median distance of losses from their median, as text."""
    return format_mean(*spread(values), 2)
