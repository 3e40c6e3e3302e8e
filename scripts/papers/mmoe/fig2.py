"""Figure 2: how the labels of two tasks correlate."""

import dataclasses

import numpy as np

from dselectk_keras.datasets import correlated_tasks
from dselectk_keras.plots import plot_curves
from experiments.experiment import Experiment
from experiments.report import Claim, Fact, Picture, Report, Table
from papers import citations
from papers.mmoe._protocol import by_preset

NOISE = 0.01  # The variance.


@dataclasses.dataclass(frozen=True)
class Fig2(Experiment):
    """Pearson's correlation of the labels, for many angles between the weights.

    Args:
        points: At how many cosines from 0 to 1.
        examples: On how many examples a correlation is measured.
        c: Length of the weight vectors; see `datasets.correlated_tasks`.
        m: Number of sines in the labels.
    """

    name = "mmoe-fig2"
    title = "the correlation of labels follows that of the tasks' weights"
    paper = citations.MMOE
    where = "Figure 2"
    about = (
        "In the synthetic data of Section 3.2, the cosine *p* between two weight "
        "vectors sets how related two tasks are. This figure shows the correlation of "
        "the labels for many values of *p*. Labels are a linear part, a sum of sines "
        "and noise. Labels without the sines are the control: their correlation is "
        "*p*, apart from the noise. Nothing is trained."
    )

    points: int = 21
    examples: int = 10_000
    c: float = 1.0
    m: int = 5

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(seeds=2, points=5, examples=500),
            "cpu": cls(seeds=100),
            "paper": cls(seeds=100),
        }

    @property
    def arms(self):
        return {"linear and sines": self.m, "linear": 0}

    def run(self, arm, jobs):
        p = np.linspace(0, 1, self.points)
        return [
            {"p": p, "correlation": [self._correlation(arm, x, job.seed) for x in p]}
            for job in jobs
        ]

    def report(self, results):
        p = results.values("linear", "p")[0]
        values = {arm: results.values(arm, "correlation") for arm in self.arms}
        means = {arm: found.mean(axis=0) for arm, found in values.items()}
        bars = {arm: 2 * found.std(axis=0) for arm, found in values.items()}
        both, linear = means["linear and sines"], means["linear"]
        off = np.abs(linear - p).max()
        claims = [
            Claim(
                "The labels are positively correlated.",
                f"For p > 0, the lowest mean correlation is {both[1:].min():.3f}.",
                bool((both[1:] > 0).all()),
                "Section 3.2, on Figure 2",
            ),
            Claim(
                "The correlation of the labels grows with p.",
                f"It rises from {both[0]:.2f} at p = 0 to {both[-1]:.2f} at p = 1; "
                f"the smallest rise between two points is {np.diff(both).min():.3f}.",
                bool((np.diff(both) > 0).all()),
                "Figure 2, the curve",
            ),
            Claim(
                "For linear labels it is p.",
                f"Without the sines it differs from p by at most {off:.3f}. The noise "
                f"alone accounts for {1 - self.c**2 / (self.c**2 + NOISE):.3f} at "
                "p = 1.",
                bool(off < 0.02),
                "Section 3.2, on linear labels",
                "p",
            ),
        ]

        def draw():
            return plot_curves(
                {arm: (p, mean) for arm, mean in means.items()},
                errors=bars,
                x_label="cosine of the weight vectors, p",
                y_label="Pearson's correlation of the labels",
            )

        caption = (
            "Correlation of the labels against the cosine of the weight vectors: mean "
            f"and two standard deviations over {len(values['linear'])} data sets."
        )
        shown = sorted({np.abs(p - x).argmin() for x in (0, 0.25, 0.5, 0.75, 0.9, 1)})
        table = Table(
            "Correlation of the labels",
            ["p", *self.arms],
            [
                [
                    f"{p[i]:.2f}",
                    *(f"{means[arm][i]:.3f} ± {bars[arm][i]:.3f}" for arm in means),
                ]
                for i in shown
            ],
            "Mean and two standard deviations over the data sets. The paper draws the "
            "curve and prints no numbers.",
        )
        note = (
            "With the defaults of `datasets.correlated_tasks`, the sines outweigh the "
            "linear part. They are nearly uncorrelated between tasks unless p is close "
            "to 1. The curve therefore lies below the diagonal."
        )
        return Report(
            claims,
            [table],
            [Picture("correlation", caption, draw)],
            [note],
            protocol=self._protocol(),
        )

    def _protocol(self):
        return [
            Fact("Data points", "10,000", by_preset(self, lambda e: f"{e.examples:,}")),
            Fact("Trials", 100, by_preset(self, lambda e: e.seeds)),
            Fact("Error bars", "two standard deviations", "two standard deviations"),
            Fact(
                "Inputs",
                "d standard normal features (Section 3.2); 100 in Section 5.1",
                "100 standard normal features",
            ),
            Fact("Noise of the labels", "N(0, 0.01)", f"variance {NOISE:g}"),
            Fact(
                "Weights and sines",
                "c, m, the frequencies and the phases are given parameters",
                f"c = {self.c:g}; {self.m} sines of frequencies 1, 2, ... and phases "
                "0, 1, 4, ...",
                "The paper gives no values.",
            ),
            Fact(
                "Cosines",
                "no list",
                by_preset(self, lambda e: f"{e.points} from 0 to 1"),
                "The text does not name them.",
            ),
        ]

    def _correlation(self, arm, p, seed):
        data = correlated_tasks(
            float(p),
            c=self.c,
            m=self.arms[arm],
            num_train=self.examples,
            num_validation=1,
            num_test=1,
            seed=seed,
            noise=NOISE**0.5,
        )
        return round(np.corrcoef(data.train.y.T)[0, 1], 4)
