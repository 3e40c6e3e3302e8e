"""Figure 2: how the labels of two tasks correlate."""

import dataclasses

import numpy as np

import dselectk_keras as dk
from research.engine import Claim, Experiment, preset
from research.papers import citations

NOISE = 0.01  # The variance.
BOTH, LINEAR = "linear and sines", "linear"


@dataclasses.dataclass(frozen=True)
class Fig2(Experiment):
    """Pearson's correlation of the labels, for many angles between the weights."""

    name = "mmoe-fig2"
    title = "the correlation of labels follows that of the tasks' weights"
    paper = citations.MMOE
    where = "Figure 2"
    looks = 2
    trains = False

    seeds: int = preset(100, smoke=2)
    points: int = preset(21, smoke=5)  # Cosines from 0 to 1.
    examples: int = preset(10_000, smoke=500)  # For a correlation.
    c: float = 1.0  # Length of the weight vectors; see `datasets.correlated_tasks`.
    m: int = 5  # Number of sines in the labels.

    @property
    def arms(self):
        return {BOTH: self.m, LINEAR: 0}

    def run(self, arm, jobs):
        p = np.linspace(0, 1, self.points).tolist()
        return [
            {"p": p, "correlation": [self._correlation(arm, x, job.seed) for x in p]}
            for job in jobs
        ]

    def _correlation(self, arm, p, seed):
        sizes = {"num_train": self.examples, "num_validation": 1, "num_test": 1}
        own = {"c": self.c, "m": self.arms[arm], "noise": NOISE**0.5, "seed": seed}
        data = dk.datasets.correlated_tasks(p, **sizes, **own)
        return round(np.corrcoef(data.train.y.T)[0, 1], 4)

    @property
    def claims(self):
        yield Claim("positive", lambda r: measured(r)["lowest"] > 0)
        yield Claim("grows", lambda r: measured(r)["rise"] > 0)
        of_noise = 1 - self.c**2 / (self.c**2 + NOISE)
        yield Claim("linear", lambda r: off(r) < 0.02, {"of_noise": of_noise})

    def table_correlation(self, results):
        yield ["p", "linear and sines", "linear"]
        found = cosines(results)
        for p in (0, 0.25, 0.5, 0.75, 0.9, 1):
            i = np.abs(found - p).argmin()
            texts = (
                f"{curve(results, arm)[i]:.3f} ± {bars(results, arm)[i]:.3f}"
                for arm in (BOTH, LINEAR)
            )
            yield [f"{found[i]:.2f}", *texts]

    def num_datasets(self, results):
        """The number of data sets."""
        return len(results.values(LINEAR, "p"))

    def draw_correlation(self, results):
        p = cosines(results)
        return dk.plots.plot_curves(
            {arm: (p, curve(results, arm)) for arm in self.arms},
            errors={arm: bars(results, arm) for arm in self.arms},
            x_label="cosine of the weight vectors, p",
            y_label="Pearson's correlation of the labels",
        )


def cosines(results):
    """The cosines at which the correlation is measured."""
    return results.values(LINEAR, "p")[0]


def curve(results, arm):
    """The mean correlation at each cosine."""
    return results.values(arm, "correlation").mean(axis=0)


def bars(results, arm):
    """Two standard deviations at each cosine."""
    return 2 * results.values(arm, "correlation").std(axis=0)


def measured(results):
    """The ends of the curve, its lowest point above p = 0, and its smallest rise."""
    mean = curve(results, BOTH)
    found = {"lowest": mean[1:].min(), "first": mean[0], "last": mean[-1]}
    return {**found, "rise": np.diff(mean).min()}


def off(results):
    """The largest difference of the correlation of linear labels and the cosine."""
    return np.abs(curve(results, LINEAR) - cosines(results)).max()
