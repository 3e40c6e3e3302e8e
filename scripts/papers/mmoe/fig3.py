"""Figure 3: a shared-bottom model by task correlation."""

import dataclasses

from dselectk_keras.plots import plot_curves
from experiments.compare import all_hold, format_gap, mean_and_error
from experiments.report import (
    Claim,
    Fact,
    Picture,
    Question,
    Report,
    Table,
)
from experiments.results import format_mean
from papers import citations
from papers.mmoe import _synthetic
from papers.mmoe._protocol import by_preset
from papers.mmoe._synthetic import TOWER_UNITS, gaps, median


@dataclasses.dataclass(frozen=True)
class Fig3(_synthetic.Synthetic):
    """The loss of a shared-bottom model during training, by task correlation.

    The arguments beside these are those of `Synthetic`.

    Args:
        shared_units: Width of the shared layer.
        others: Further settings, at the lowest and the highest correlation: pairs of
            a width of the shared layer and a learning rate.
    """

    name = "mmoe-fig3"
    title = "a shared-bottom model is worse the less its tasks are related"
    paper = citations.MMOE
    where = "Figure 3"
    about = (
        "One shared layer of 16 units and a tower of 8 for each of two tasks, trained "
        "on the synthetic data of Section 3.2. The tasks' weight vectors have the "
        "cosine *p*. Everything else stays the same: the sizes, the learning rate and "
        "the seeds."
    )

    shared_units: int = 16
    others: tuple[tuple[int, float], ...] = ((32, 1e-3), (16, 3e-3))

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                num_train=256, num_held_out=128, epochs=2, others=((16, 3e-3),)
            ),
            "cpu": cls(seeds=30, starts=5),
            "paper": cls(seeds=200),
        }

    @property
    def arms(self):
        own = self.shared_units, self.learning_rates[0]
        arms = {f"p = {p:g}": (p, *own) for p in self.correlations}
        for units, rate in self.others:
            for p in (min(self.correlations), max(self.correlations)):
                arms[f"p = {p:g}, {_setting(units, rate)}"] = p, units, rate
        return arms

    def run(self, arm, jobs):
        p, units, rate = self.arms[arm]
        jobs = [job._replace(settings={"learning_rate": rate}) for job in jobs]
        return self.train("Shared-Bottom", p, jobs, units)

    def report(self, results):
        ordered = [f"p = {p:g}" for p in sorted(self.correlations)]

        def draw():
            lines, errors = _synthetic.curves(
                self, results, {arm: arm for arm in ordered}
            )
            figure = plot_curves(
                lines,
                errors=errors,
                x_label="training steps",
                y_label="loss on held-out examples",
                log="y",
            )
            _synthetic.write_losses(figure.axes[0])
            return figure

        caption = (
            "Loss of the shared-bottom model during training, by the cosine p of the "
            "tasks' weights: mean and standard error over the runs."
        )
        middle = ", ".join(
            f"{format_mean(*median(results.values(arm, 'loss')))} at {arm}"
            for arm in ordered
        )
        return Report(
            [self._trend(results, ordered), self._general(results)],
            [self._table(results)],
            [Picture("loss", caption, draw)],
            _synthetic.remarks(),
            [Question("What are the medians at the end?", f"{middle}.")],
            self._protocol(),
        )

    def _trend(self, results, ordered):
        losses = (f"{results.text(arm, 'loss')} at {arm}" for arm in ordered)
        return Claim(
            "The less related the tasks, the higher the loss.",
            f"At the end it is {', '.join(losses)}.",
            _synthetic.is_trend(results, ordered),
            "Section 3.3, on Figure 3",
        )

    def _general(self, results):
        texts, holds = [], []
        low, high = (
            f"p = {p:g}" for p in (min(self.correlations), max(self.correlations))
        )
        for setting in (_setting(*other) for other in self.others):
            arms = f"{low}, {setting}", f"{high}, {setting}"
            gap = format_gap(*mean_and_error(gaps(results, *arms)), 3)
            texts.append(f"{gap} with {setting}")
            holds.append(_synthetic.is_trend(results, arms))
        return Claim(
            "The trend is the same for many other hyperparameters.",
            f"From {high} to {low} the loss changes by {', '.join(texts)}.",
            all_hold(holds),
            "Section 3.3, on Figure 3",
        )

    def _table(self, results):
        rows = [
            [
                arm,
                results.text(arm, "loss"),
                format_mean(*median(results.values(arm, "loss"))),
                results.text(arm, "train_loss"),
            ]
            for arm in self.arms
        ]
        return Table(
            "Loss at the end",
            ["tasks", "mean", "median", "mean in training"],
            rows,
            "The paper draws curves and prints no numbers.",
        )

    def _protocol(self):
        return [
            Fact("Shared layer", 16, by_preset(self, lambda e: e.shared_units)),
            Fact("Towers", "one layer of 8", f"one layer of {TOWER_UNITS}"),
            Fact(
                "Optimizer",
                "Adam with TensorFlow's default setting",
                by_preset(self, lambda e: f"Adam, {e.learning_rates[0]:g}"),
                "The same, but for Keras' epsilon of 1e-7; TensorFlow's is 1e-8.",
            ),
            Fact(
                "Other hyperparameters",
                "many, not named",
                by_preset(
                    self, lambda e: "; ".join(_setting(*other) for other in e.others)
                ),
                "Two settings show whether the trend depends on one.",
            ),
            *_synthetic.protocol(self),
        ]


def _setting(units, rate):
    return f"{units} units, learning rate {rate:g}"
