"""What Figures 4 and 5 share: their runs."""

import dataclasses

import numpy as np

from experiments.report import Fact
from papers.mmoe import _synthetic
from papers.mmoe._protocol import by_preset
from papers.mmoe._synthetic import MODELS, Synthetic


@dataclasses.dataclass(frozen=True)
class ThreeModels(Synthetic):
    """The runs of Section 5.1: three models at each correlation, tuned alike.

    Args:
        trial_runs: How many runs a learning rate is tried with.
    """

    learning_rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    trial_runs: int = 1

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                correlations=(0.5, 1.0),
                num_train=256,
                num_held_out=128,
                epochs=2,
                learning_rates=(1e-3,),
            ),
            "cpu": cls(seeds=30, trials=3, starts=5),
            "paper": cls(seeds=200, trials=3),
        }

    @property
    def arms(self):
        return {
            arm_of(model, p): (model, p) for model in MODELS for p in self.correlations
        }

    @property
    def source(self):
        """See `Experiment`: the two figures show the same runs."""
        return "mmoe-fig4"

    def run(self, arm, jobs):
        if not jobs[0].is_trial:
            return self.train(*self.arms[arm], jobs)
        several = [
            job._replace(seed=job.seed + run)
            for job in jobs
            for run in range(self.trial_runs)
        ]
        losses = [found["loss"] for found in self.train(*self.arms[arm], several)]
        means = np.reshape(losses, (len(jobs), self.trial_runs)).mean(axis=1)
        return [{"objective": float(mean)} for mean in means]


def arm_of(model, p):
    """The name of an arm."""
    return f"{model}, p = {p:g}"


def three_models_protocol(experiment):
    """The facts of Section 5.1.

    Args:
        experiment: A `ThreeModels`.

    Returns:
        A list of `Fact`.
    """
    return [
        Fact(
            "Experts",
            "8, each one layer of 16",
            f"{_synthetic.NUM_EXPERTS}, each one layer of {_synthetic.EXPERT_UNITS}",
        ),
        Fact(
            "Gates",
            "softmax of a linear function of the input, without bias (Equation 8)",
            "the same",
        ),
        Fact("Towers", "one layer of 8", f"one layer of {_synthetic.TOWER_UNITS}"),
        Fact(
            "Shared-Bottom",
            "one layer of 113, by the number of parameters in experts and towers",
            f"one layer of {_synthetic.SHARED_UNITS}",
        ),
        Fact("Optimizer", "Adam", "Adam"),
        Fact(
            "Learning rate",
            "grid search in 0.0001, 0.001, 0.01",
            by_preset(
                experiment,
                lambda e: (
                    f"grid search in {', '.join(f'{r:g}' for r in e.learning_rates)} "
                    f"for each model and correlation, {e.trial_runs} run per value"
                ),
            ),
            "The paper does not say whether each correlation has its own search, nor "
            "how many runs decide.",
        ),
        *_synthetic.protocol(experiment),
    ]
