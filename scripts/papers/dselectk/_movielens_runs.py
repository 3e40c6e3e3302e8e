"""Static gates on MovieLens, recorded after every step: for Figure 6 and Table 4."""

import abc
import dataclasses

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.callbacks import GateRecorder
from papers.dselectk._gates import (
    METHODS,
    Method,
    choices,
    decided,
    is_admissible,
    movement,
)
from papers.dselectk._movielens import (
    CPU,
    SHAPES,
    SMOKE,
    MovieLensExperiment,
    measure,
)

GATES = ("DSelect-k", "Top-k")


@dataclasses.dataclass(frozen=True)
class RecordedExperiment(MovieLensExperiment, abc.ABC):
    """DSelect-k and Top-k with static gates, each tuned for each weight of the tasks.

    Args:
        points: How many records of the first seed are kept to be drawn.
    """

    points: int = 80

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(trials=1, points=3, alphas=(0.5,), **SMOKE),
            "cpu": cls(seeds=5, trials=4, **CPU),
            "paper": cls(seeds=100, trials=30),
        }

    @property
    def source(self):
        return "dselectk-fig6"

    @property
    def arms(self):
        methods = {name: METHODS[f"{name}, static"] for name in GATES}
        methods |= {name: Method(make) for name, make in self.gates.items()}
        return {
            name_arm(name, alpha): (method, alpha)
            for alpha in self.alphas
            for name, method in methods.items()
        }

    def space(self, arm):
        method, _ = self.arms[arm]
        return choices(self.full_space(method))

    def run(self, arm, jobs):
        data = self.data()
        return [self._run(*self.arms[arm], data, job) for job in jobs]

    def remark(self, results):
        """How many of the reported DSelect-k gates have decided, as they must."""
        arms = [name_arm("DSelect-k", alpha) for alpha in self.alphas]
        kept = np.concatenate([results.values(arm, "admissible") for arm in arms])
        return (
            f"**The rule that S(Z) is binary** is kept by {(kept == 1).sum()} of the "
            f"{len(kept)} reported runs of DSelect-k. The paper disregards settings "
            "that break it (Section 3.1.3). Tuning takes such a setting here if all "
            "that were tried break it: the last table says for which arms."
        )

    def _run(self, method, alpha, data, job):
        keras.utils.set_random_seed(job.seed)
        fixed = {name: each[0] for name, each in self.full_space(method).items()}
        settings = fixed | job.settings
        shape = {name: settings.pop(name) for name in SHAPES if name in settings}
        model = self.model(data, method, alpha, shape=shape, **settings)
        recorder = GateRecorder(every=1)
        model.fit(
            Batches(data.train, self.batch_size, job.seed),
            epochs=shape["epochs"],
            shuffle=False,
            callbacks=[recorder],
            verbose=0,
        )
        validation = measure(model, data.validation, alpha)
        record = recorder.history["mmoe"]
        weights, binary = record["weights"], record.get("binary")
        found = {
            "objective": validation["loss"],
            "admissible": is_admissible(validation, method, shape["num_nonzeros"]),
            "loss": measure(model, data.test, alpha)["loss"],
            "decided": None if binary is None else decided(binary),
            "evaluated": float((weights > 0).any(axis=1).sum(axis=1).mean()),
            **movement(weights),
        }
        if job.seed:
            return found
        kept = np.linspace(0, len(weights) - 1, min(self.points, len(weights)))
        kept = kept.round().astype(int)
        return found | {
            "steps": recorder.history.steps[kept],
            "weights": weights[kept].astype("float64").round(4),
        }


def name_arm(gate, alpha):
    """The name of an arm."""
    return f"{gate}, alpha {alpha}"
