"""Figure 2: how the labels of two tasks correlate."""

import dataclasses

import numpy as np

from dselectk_keras.datasets import correlated_tasks
from dselectk_keras.experiments.compare import standard_error
from dselectk_keras.experiments.experiment import Experiment
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.plots import plot_curves
from papers import citations


@dataclasses.dataclass(frozen=True)
class Fig2(Experiment):
    """Pearson's correlation of the labels, for many angles between the weights.

    Args:
        points: At how many cosines from 0 to 1.
        c: Length of the weight vectors; see `datasets.correlated_tasks`.
        m: Number of sines in the labels.
    """

    name = "mmoe-fig2"
    title = "the correlation of labels follows that of the tasks' weights"
    paper = citations.MMOE
    where = "Figure 2"
    about = (
        "The synthetic data of Section 3.2 set how related two tasks are by the cosine "
        "*p* between their weight vectors, not by the correlation of their labels. "
        "Here is what labels that are drawn for many values of *p* come to. The labels "
        "are a linear part and a sum of sines; without the sines their correlation "
        "is *p* itself, which is the control. Nothing is trained: "
        "`datasets.correlated_tasks` measures the correlation on 10,000 examples "
        "without noise."
    )

    points: int = 21
    c: float = 1.0
    m: int = 5

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(seeds=2, points=5),
            "cpu": cls(seeds=20),
            "paper": cls(seeds=200),
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
        means, errors = {}, {}
        for arm in self.arms:
            values = results.values(arm, "correlation")
            means[arm] = values.mean(axis=0)
            if len(values) > 1:
                errors[arm] = standard_error(values)
        both, linear = means["linear and sines"], means["linear"]
        off = np.abs(linear - p).max()
        claims = [
            Claim(
                "The correlation of the labels is positive where that of the weights "
                "is, and grows with it.",
                f"It rises from {both[0]:.2f} at p = 0 to {both[-1]:.2f} at p = 1; "
                f"the smallest rise between two points is {np.diff(both).min():.3f}.",
                bool((both[1:] > 0).all() and (np.diff(both) > 0).all()),
            ),
            Claim(
                "For linear labels it is the cosine itself.",
                f"Without the sines it differs from p by at most {off:.3f}.",
                bool(off < 0.02),
            ),
        ]

        def draw():
            return plot_curves(
                {arm: (p, mean) for arm, mean in means.items()},
                errors=errors,
                x_label="cosine of the weight vectors, p",
                y_label="Pearson's correlation of the labels",
            )

        caption = (
            "Correlation of the labels against the cosine of the weight vectors: mean "
            "and standard error over the data sets."
        )
        shown = sorted({np.abs(p - x).argmin() for x in (0, 0.25, 0.5, 0.75, 0.9, 1)})
        table = Table(
            "Correlation of the labels",
            ["p", *self.arms],
            [[f"{p[i]:.2f}", f"{both[i]:.3f}", f"{linear[i]:.3f}"] for i in shown],
            "The paper draws the curve and prints no numbers.",
        )
        note = (
            "The paper leaves the length of the weights, the number of sines and their "
            "frequencies and phases open. With the defaults of "
            f"`datasets.correlated_tasks` (c = {self.c:g}; {self.m} sines of "
            "frequencies 1, 2, ...), the sines outweigh the linear part and are nearly "
            "uncorrelated between tasks unless p is close to 1, so that the curve lies "
            "below the diagonal."
        )
        return Report(claims, [table], [Picture("correlation", caption, draw)], [note])

    def _correlation(self, arm, p, seed):
        data = correlated_tasks(
            float(p),
            c=self.c,
            m=self.arms[arm],
            num_train=1,
            num_validation=1,
            num_test=1,
            seed=seed,
        )
        return round(data.info["label_correlation"], 4)
