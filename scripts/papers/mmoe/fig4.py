"""Figure 4: three models by task correlation."""

import dataclasses

from experiments import drawing
from papers.mmoe._synthetic import MODELS, ThreeModels, arm_of, of_draws, write_losses


@dataclasses.dataclass(frozen=True)
class Fig4(ThreeModels):
    """The loss of the three models during training, by task correlation."""

    name = "mmoe-fig4"
    title = "the losses of three models, by the correlation of their tasks"
    where = "Figure 4"

    def by_model(self, write):
        """What `write` says of the arms of each model, from low to high correlation."""
        texts = (write([arm_of(model, p) for p in self.ordered]) for model in MODELS)
        return "; ".join(map("{} ({})".format, texts, MODELS))

    def above(self, results, model, other, p):
        """By how much the loss of a model is above another's: a `Gap`."""
        arms = arm_of(model, p), arm_of(other, p)
        return of_draws(results, results.differences(*arms, "loss"))

    def change(self, results, model, less=None):
        """How much worse a model is at the lowest correlation than at the highest.

        With `less`, a model, the change of that is subtracted, seed by seed.
        """
        ends = (arm_of(model, self.ordered[i]) for i in (0, -1))
        found = results.differences(*ends, "loss")
        if less:
            ends = (arm_of(less, self.ordered[i]) for i in (0, -1))
            found = found - results.differences(*ends, "loss")
        return of_draws(results, found)

    def draw_loss(self, results):
        """A panel for each model, a line for each correlation."""
        figure, axes = drawing.panels(1, len(MODELS), 2.5, sharey=True)
        for ax, model in zip(axes.flat, MODELS, strict=True):
            arms = {f"p = {p:g}": arm_of(model, p) for p in self.correlations}
            self.plot_losses(results, arms, ax=ax, title=model)
        write_losses(axes[0, 0].yaxis)
        drawing.label(axes[0, 0], y="loss on held-out examples")
        return figure
