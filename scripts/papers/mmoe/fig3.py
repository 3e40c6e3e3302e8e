"""Figure 3: a shared-bottom model by task correlation."""

import dataclasses
import itertools

from dselectk_keras.experiments.compare import all_hold, is_positive
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.experiments.results import format_mean
from dselectk_keras.plots import plot_curves
from papers import citations
from papers.mmoe import _synthetic
from papers.mmoe._synthetic import gaps, median


@dataclasses.dataclass(frozen=True)
class Fig3(_synthetic.Synthetic):
    """The loss of a shared-bottom model during training, by task correlation."""

    name = "mmoe-fig3"
    title = "a shared-bottom model is worse the less its tasks are related"
    paper = citations.MMOE
    where = "Figure 3"
    about = (
        "One shared layer and a tower for each of two tasks, trained on synthetic data "
        "of Section 3.2 whose weight vectors have the cosine *p*. Everything but *p* "
        "stays the same: the sizes, the learning rate and the seeds. The loss is the "
        "mean squared error on examples that were not trained on, averaged over the "
        "two tasks."
    )

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(num_train=256, num_held_out=128, epochs=2),
            "cpu": cls(seeds=20, starts=5),
            "paper": cls(seeds=200),
        }

    @property
    def arms(self):
        return {f"p = {p:g}": p for p in self.correlations}

    def run(self, arm, jobs):
        return self.train("Shared-Bottom", self.arms[arm], jobs)

    def report(self, results):
        ordered = sorted(self.arms, key=self.arms.__getitem__)
        losses = {arm: median(results.values(arm, "loss")) for arm in ordered}
        rises = [gaps(results, *pair) for pair in itertools.pairwise(ordered)]
        claim = Claim(
            "The less related the tasks, the higher the loss.",
            "At the end it is "
            + ", ".join(f"{format_mean(*losses[arm])} at {arm}" for arm in ordered)
            + ".",
            all_hold(is_positive(*median(rise)) for rise in rises),
        )

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
            "tasks' weights: median and standard error over the runs."
        )
        table = Table(
            "Loss at the end",
            ["p", "median", "mean", "mean in training"],
            [
                [
                    f"{self.arms[arm]:g}",
                    format_mean(*losses[arm]),
                    results.text(arm, "loss"),
                    results.text(arm, "train_loss"),
                ]
                for arm in ordered
            ],
            "The paper draws curves and prints no numbers.",
        )
        return Report(
            [claim],
            [table],
            [Picture("loss", caption, draw)],
            _synthetic.remarks(self),
        )
