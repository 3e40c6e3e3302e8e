"""Data, models, runs and curves of the figures on synthetic data."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from research.engine import Experiment, all_positive, compare, preset
from research.engine.judging import bootstrap_gap, holm, trimmed_gap
from research.engine.retrained import Retrained
from research.papers import citations

MODELS = {"Shared-Bottom": "shared_bottom", "OMoE": "omoe", "MMoE": "mmoe"}
NUM_EXPERTS, EXPERT_UNITS, TOWER_UNITS = 8, 16, 8
# Section 5.1: 13,056 parameters in experts and towers, divided by 100 + 2 * 8.
SHARED_UNITS = 113
INPUT_DIM = 100
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


@dataclasses.dataclass(frozen=True)
class Synthetic(Experiment):
    """Models of two tasks, trained on data of several correlations."""

    paper = citations.MMOE
    needs = ("data that are drawn", INPUT_DIM + 2)

    seeds: int = preset(30, paper=200, smoke=1)
    correlations: tuple[float, ...] = (0.5, 0.9, 1.0)  # Cosines of the tasks' weights.
    c: float = 1.0  # Length of the weight vectors; see `datasets.correlated_tasks`.
    m: int = 5  # Number of sines in the labels.
    num_train: int = preset(50_000, smoke=256)
    num_held_out: int = preset(5_000, smoke=128)
    epochs: int = preset(24, smoke=2)
    batch_size: int = 256
    starts: int = preset(5, paper=1, smoke=1)  # Seeds in a row that share a data set.
    learning_rates: tuple[float, ...] = (1e-3,)  # Of Adam; one is not tuned.

    @property
    def ordered(self):
        """The correlations, from the lowest to the highest."""
        return sorted(self.correlations)

    @property
    def fields(self) -> dict[str, Any]:
        several = self.starts > 1
        fewer = "Fewer runs save time." if self.seeds < 200 else ""
        return {
            "num_steps": self.epochs * math.ceil(self.num_train / self.batch_size),
            "data_of_runs": (
                f"{self.starts} in a row share a data set"
                if several
                else "each has its own data"
            ),
            "why_fewer_runs": (
                "Fewer runs, and several on one data set, save time."
                if several
                else fewer
            ),
            "one_draw": (
                " The runs that share a data set are one draw: their mean counts once "
                "in a gap, and in its error."
                if several
                else ""
            ),
        }

    def space(self, arm):
        several = len(self.learning_rates) > 1
        return {"learning_rate": self.learning_rates} if several else {}

    def data(self, p, seed):
        """The data set that a seed trains on."""
        sizes = {"num_train": self.num_train, "num_validation": self.num_held_out}
        own = {"c": self.c, "m": self.m, "seed": seed // self.starts}
        return dk.datasets.correlated_tasks(p, num_test=1, **sizes, **own)

    @functools.cached_property
    def _retrained(self):
        """A function that gives the `Retrained` of a model and a width."""
        return functools.cache(
            lambda *which: Retrained(functools.partial(build, *which), self.batch_size)
        )

    def train(self, model, p, jobs, shared_units=SHARED_UNITS):
        """Train one of `MODELS` on tasks of a correlation; see `read`."""
        retrained, found = self._retrained(model, shared_units), []
        for job in jobs:
            data = self.data(p, job.seed)
            settings = {"learning_rate": self.learning_rates[0], **job.settings}
            options = {"validation": data.validation, **settings}
            retrained.train(data.train, job.seed, self.epochs, **options)
            found.append(read(retrained.history))
        return found

    def plot_losses(self, results, arms, **options):
        """Plot mean losses during training, of arms by names of lines."""
        epoch = math.ceil(self.num_train / self.batch_size)
        steps = epoch * np.arange(1, 1 + self.epochs)
        runs = {name: results.values(arm, "curve") for name, arm in arms.items()}
        return dk.plots.plot_curves(
            {name: (steps, each.mean(axis=0)) for name, each in runs.items()},
            errors={name: compare.standard_error(each) for name, each in runs.items()},
            x_label="training steps",
            log="y",
            **options,
        )


@dataclasses.dataclass(frozen=True)
class ThreeModels(Synthetic):
    """The runs of Section 5.1: three models at each correlation, tuned alike."""

    trials: int = preset(3, smoke=0)
    correlations: tuple[float, ...] = preset((0.5, 0.9, 1.0), smoke=(0.5, 1.0))
    learning_rates: tuple[float, ...] = preset((1e-4, 1e-3, 1e-2), smoke=(1e-3,))
    trial_runs: int = preset(5, smoke=1)  # Runs of a learning rate that is tried.
    seeds: int = preset(200, smoke=1)
    starts: int = 1  # Each run has its own data.

    shown_runs = "mmoe-fig4"  # Figures 4 and 5 show the same runs.

    @property
    def arms(self):
        return {
            arm_of(model, p): (model, p) for model in MODELS for p in self.correlations
        }

    def run(self, arm, jobs):
        found = self.train(*self.arms[arm], jobs)
        if jobs[0].is_trial:
            return [{"objective": each["loss"]} for each in found]
        return found


def arm_of(model, p):
    """The name of an arm."""
    return f"{model}, p = {p:g}"


def build(model, shared_units, learning_rate):
    """A compiled model of the paper's size, one of `MODELS`."""
    one, several = (1, [shared_units]), (NUM_EXPERTS, [EXPERT_UNITS])
    experts = dk.DenseExperts(*(one if model == "Shared-Bottom" else several))
    tasks = [dk.Task(f"task_{task}", tower=(TOWER_UNITS,)) for task in range(2)]
    options = {"experts": experts, "per_example": True}
    built = dk.build_multitask_model(INPUT_DIM, tasks, MODELS[model], **options)
    built.compile(keras.optimizers.Adam(learning_rate))
    return built


def read(history):
    """Squared errors from the history of a run, as means over the tasks."""
    curve = [float(f"{loss / 2:.4g}") for loss in history["val_task_loss"]]
    train_loss = history["task_loss"][-1] / 2
    return {"loss": curve[-1], "train_loss": train_loss, "curve": curve}


def median(values):
    """The median over runs, which a run in a poor minimum does not move; its error."""
    return bootstrap_gap(functools.partial(np.median, axis=-1), values)[:2]


def is_trend(results, arms):
    """Judge whether the loss falls from the first arm to the last.

    Neighbours may be too close to tell apart, but not the wrong way round.
    """
    pairs = [(arms[0], arms[-1]), *itertools.pairwise(arms)]
    whole, *steps = (of_draws(results, results.differences(*pair)) for pair in pairs)
    return False if False in holm([whole, *steps]) else all_positive([whole])


def of_draws(results, values):
    """The `Gap` of differences by seed; the runs on one data set are one draw.

    One failed run of many does not decide it: 5 % at either end are left out.
    """
    starts = results.experiment.starts
    draws = range(0, len(values), starts)
    return trimmed_gap([np.mean(values[i : i + starts]) for i in draws])


def write_losses(axis):
    """Plain numbers on a logarithmic axis of losses."""
    low, high = axis.get_view_interval()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
