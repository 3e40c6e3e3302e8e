"""Figure 4: three models by task correlation."""

import dataclasses
import itertools

from research.engine import Claim, all_hold, all_positive, drawing
from research.engine.results import format_mean
from research.engine.search import best_settings
from research.papers.mmoe._synthetic import (
    MODELS,
    ThreeModels,
    arm_of,
    is_trend,
    median,
    of_draws,
    write_losses,
)

SHARED = "Shared-Bottom"


@dataclasses.dataclass(frozen=True)
class Fig4(ThreeModels):
    """The loss of the three models during training, by task correlation."""

    name = "mmoe-fig4"
    title = "the losses of three models, by the correlation of their tasks"
    where = "Figure 4"
    looks = 3

    def by_model(self, write):
        """Texts of `write` for the arms of each model, from low to high correlation."""
        return "; ".join(
            ", ".join(write(arm_of(model, p)) for p in self.ordered) + f" ({model})"
            for model in MODELS
        )

    def above(self, results, model, other, p):
        """By how much the loss of a model is above another's: a `Gap`."""
        arms = arm_of(model, p), arm_of(other, p)
        return of_draws(results, results.differences(*arms, "loss"))

    def change(self, results, model, less=None):
        """The loss of a model at the lowest correlation minus that at the highest.

        With `less`, a model, the change of that is subtracted, seed by seed.
        """
        ends = (arm_of(model, self.ordered[i]) for i in (0, -1))
        found = results.differences(*ends, "loss")
        if less:
            ends = (arm_of(less, self.ordered[i]) for i in (0, -1))
            found = found - results.differences(*ends, "loss")
        return of_draws(results, found)

    @property
    def claims(self):
        low, high = self.ordered[0], self.ordered[-1]
        shared = [(SHARED, m, p) for p in self.ordered for m in ("MMoE", "OMoE")]

        def hardly_differ(results):
            quarter = abs(self.above(results, SHARED, "MMoE", high).mean) / 4
            return self.above(results, "OMoE", "MMoE", high).is_zero(quarter)

        tests = {
            "correlated": lambda r: all_hold(
                is_trend(r, [arm_of(model, p) for p in self.ordered])
                for model in MODELS
            ),
            "smaller-gap": lambda r: all_positive(
                self.change(r, m, "MMoE") for m in (SHARED, "OMoE")
            ),
            "same-tasks": hardly_differ,
            "gets-worse": lambda r: all_positive(
                [
                    self.above(r, "OMoE", "MMoE", low),
                    self.change(r, "OMoE"),
                    self.change(r, "OMoE", "MMoE"),
                ]
            ),
            "above-shared": lambda r: all_positive(
                self.above(r, *each) for each in shared
            ),
        }
        names = {"low": low, "high": high}
        return (Claim(name, test, names) for name, test in tests.items())

    def losses(self, results):
        """The losses of each model, as text."""
        return self.by_model(lambda arm: results.text(arm, "loss"))

    def medians(self, results):
        """The medians of these losses, as text."""
        return self.by_model(
            lambda arm: format_mean(*median(results.values(arm, "loss")))
        )

    def changes(self, results):
        """The changes of the loss of each model, as text."""
        return ", ".join(f"{self.change(results, m)} ({m})" for m in MODELS)

    def above_both(self, results):
        """By how much the loss of Shared-Bottom is above the others', as text."""
        return "; ".join(
            f"{self.above(results, SHARED, 'OMoE', p)} (OMoE) and "
            f"{self.above(results, SHARED, 'MMoE', p)} (MMoE) at p = {p:g}"
            for p in self.ordered
        )

    def table_losses(self, results):
        yield ["model", "p", "learning rate", "mean", "median", "mean in training"]
        for model, p in itertools.product(MODELS, self.ordered):
            arm = arm_of(model, p)
            best, _ = best_settings(results.of(arm, tuning=True))
            mean, in_training = results.texts(arm, "loss", "train_loss")
            middle = format_mean(*median(results.values(arm, "loss")))
            rate = str(best.get("learning_rate", ""))
            yield [model, f"{p:g}", rate, mean, middle, in_training]

    def draw_loss(self, results):
        """A panel for each model, a line for each correlation."""
        figure, axes = drawing.panels(1, len(MODELS), 2.5, sharey=True)
        for ax, model in zip(axes.flat, MODELS, strict=True):
            arms = {f"p = {p:g}": arm_of(model, p) for p in self.correlations}
            self.plot_losses(results, arms, ax=ax, title=model)
        write_losses(axes[0, 0].yaxis)
        drawing.label(axes[0, 0], y="loss on held-out examples")
        return figure
