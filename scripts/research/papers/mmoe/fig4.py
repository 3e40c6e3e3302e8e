"""Figure 4: three models by task correlation."""

import dataclasses
import itertools
from typing import Any

from research.engine import Claim, all_hold, all_positive, drawing
from research.engine.results import format_mean
from research.engine.search import best_settings
from research.engine.template import readable
from research.papers.mmoe._synthetic import (
    MODELS,
    ThreeModels,
    arm_of,
    is_trend,
    median,
    of_draws,
    write_losses,
)


@dataclasses.dataclass(frozen=True)
class Fig4(ThreeModels):
    """The loss of the three models during training, by task correlation."""

    name = "mmoe-fig4"
    title = "the losses of three models, by the correlation of their tasks"
    where = "Figure 4"

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
        yield Claim(
            "Section 5.1, observation 1",
            "Every model does better the more the tasks are correlated.",
            lambda r: (
                f"Losses at p = {readable(self.ordered)}: "
                + self.by_model(lambda arm: r.text(arm, "loss"))
                + "."
            ),
            lambda r: all_hold(
                is_trend(r, [arm_of(model, p) for p in self.ordered])
                for model in MODELS
            ),
        )
        yield Claim(
            "Section 5.1, observation 2",
            "The gap between correlations is much smaller for MMoE than for OMoE and "
            "Shared-Bottom.",
            lambda r: (
                f"From p = {high:g} to p = {low:g} the loss changes by "
                + ", ".join(f"{self.change(r, m)} ({m})" for m in MODELS)
                + "."
            ),
            lambda r: all_positive(
                self.change(r, m, "MMoE") for m in ("Shared-Bottom", "OMoE")
            ),
        )
        yield Claim(
            "Section 5.1, observation 2",
            f"If the tasks are the same (p = {high:g}), OMoE and MMoE hardly differ. "
            "(It holds here if they differ by less than a quarter of what "
            "Shared-Bottom and MMoE do.)",
            lambda r: (
                "OMoE's loss differs from MMoE's by "
                f"{self.above(r, 'OMoE', 'MMoE', high)}, Shared-Bottom's by "
                f"{self.above(r, 'Shared-Bottom', 'MMoE', high)}."
            ),
            lambda r: self.above(r, "OMoE", "MMoE", high).is_zero(
                abs(self.above(r, "Shared-Bottom", "MMoE", high).mean) / 4
            ),
        )
        yield Claim(
            "Section 5.1, observation 2",
            "If the correlation decreases, OMoE gets worse, and MMoE changes little. "
            "(It holds here if OMoE gets worse by more than MMoE, and worse "
            "than MMoE.)",
            lambda r: (
                f"From p = {high:g} to p = {low:g} OMoE's loss changes by "
                f"{self.change(r, 'OMoE')}, and MMoE's by {self.change(r, 'MMoE')}; at "
                f"p = {low:g} OMoE's is above MMoE's by "
                f"{self.above(r, 'OMoE', 'MMoE', low)}."
            ),
            lambda r: all_positive(
                [
                    self.above(r, "OMoE", "MMoE", low),
                    self.change(r, "OMoE"),
                    self.change(r, "OMoE", "MMoE"),
                ]
            ),
        )
        yield Claim(
            "Section 5.1, observation 3",
            "Both MoE models are better than Shared-Bottom at every correlation.",
            lambda r: (
                "Shared-Bottom's loss is above theirs by "
                + "; ".join(
                    f"{self.above(r, 'Shared-Bottom', 'OMoE', p)} (OMoE) and "
                    f"{self.above(r, 'Shared-Bottom', 'MMoE', p)} (MMoE) at p = {p:g}"
                    for p in self.ordered
                )
                + "."
            ),
            lambda r: all_positive(
                self.above(r, "Shared-Bottom", m, p)
                for p in self.ordered
                for m in ("MMoE", "OMoE")
            ),
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

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {
            "medians": lambda r: self.by_model(
                lambda arm: format_mean(*median(r.values(arm, "loss")))
            ),
        }

    def draw_loss(self, results):
        """A panel for each model, a line for each correlation."""
        figure, axes = drawing.panels(1, len(MODELS), 2.5, sharey=True)
        for ax, model in zip(axes.flat, MODELS, strict=True):
            arms = {f"p = {p:g}": arm_of(model, p) for p in self.correlations}
            self.plot_losses(results, arms, ax=ax, title=model)
        write_losses(axes[0, 0].yaxis)
        drawing.label(axes[0, 0], y="loss on held-out examples")
        return figure
