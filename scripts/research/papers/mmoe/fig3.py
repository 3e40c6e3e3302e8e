"""Figure 3: a shared-bottom model by task correlation."""

import dataclasses
from typing import Any

from research.engine import Claim, all_hold, preset
from research.engine.results import format_mean
from research.papers.mmoe._synthetic import (
    Synthetic,
    is_trend,
    median,
    of_draws,
    write_losses,
)


@dataclasses.dataclass(frozen=True)
class Fig3(Synthetic):
    """The loss of a shared-bottom model during training, by task correlation."""

    name = "mmoe-fig3"
    title = "a shared-bottom model is worse the less its tasks are related"
    where = "Figure 3"
    looks = 2

    shared_units: int = 16
    # Further settings: widths and learning rates, at the ends of the correlations.
    others: tuple[tuple[int, float], ...] = preset(
        ((32, 1e-3), (16, 3e-3)), smoke=((16, 3e-3),)
    )

    @property
    def arms(self):
        own = self.shared_units, self.learning_rates[0]
        arms = {f"p = {p:g}": (p, *own) for p in self.correlations}
        for units, rate in self.others:
            for p in (min(self.correlations), max(self.correlations)):
                arms[f"p = {p:g}, {setting(units, rate)}"] = p, units, rate
        return arms

    def run(self, arm, jobs):
        p, units, rate = self.arms[arm]
        jobs = [job._replace(settings={"learning_rate": rate}) for job in jobs]
        return self.train("Shared-Bottom", p, jobs, units)

    @property
    def shown(self):
        """The arms by correlation, with the paper's setting."""
        return [f"p = {p:g}" for p in self.ordered]

    def ends(self, other):
        """The arms at the lowest and the highest correlation with another setting."""
        return [f"{self.shown[i]}, {setting(*other)}" for i in (0, -1)]

    def change(self, results, other):
        """Change of the loss between these ends."""
        return of_draws(results, results.differences(*self.ends(other)))

    @property
    def claims(self):
        yield Claim("less-related", lambda r: is_trend(r, self.shown))
        yield Claim(
            "same-trend",
            lambda r: all_hold(is_trend(r, self.ends(other)) for other in self.others),
            {"first": self.shown[0], "last": self.shown[-1]},
        )

    def losses(self, results):
        """The losses at the end, as text."""
        return ", ".join(f"{results.text(arm, 'loss')} at {arm}" for arm in self.shown)

    def medians(self, results):
        """The medians of the losses at the end, as text."""
        return ", ".join(
            f"{format_mean(*median(results.values(arm, 'loss')))} at {arm}"
            for arm in self.shown
        )

    def changes(self, results):
        """The changes of the loss with other settings, as text."""
        return ", ".join(
            f"{self.change(results, other):3} with {setting(*other)}"
            for other in self.others
        )

    def table_losses(self, results):
        yield ["tasks", "mean", "median", "mean in training"]
        for arm in self.arms:
            mean, in_training = results.texts(arm, "loss", "train_loss")
            yield [
                arm,
                mean,
                format_mean(*median(results.values(arm, "loss"))),
                in_training,
            ]

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {
            "other_settings": "; ".join(setting(*other) for other in self.others),
        }

    def draw_loss(self, results):
        arms = {arm: arm for arm in self.shown}
        figure = self.plot_losses(results, arms, y_label="loss on held-out examples")
        write_losses(figure.axes[0].yaxis)
        return figure


def setting(units, rate):
    """A setting, in words."""
    return f"{units} units, learning rate {rate:g}"
