"""What the figures on synthetic data share: data, models, runs and panels."""

import dataclasses
import functools
import itertools
import math

import keras
import numpy as np

from dselectk_keras.datasets import correlated_tasks
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import Task, build_multitask_model
from experiments.compare import (
    all_hold,
    is_positive,
    mean_and_error,
    standard_error,
)
from experiments.experiment import Experiment
from experiments.report import Fact
from experiments.train_jobs import train_jobs
from papers.mmoe._protocol import by_preset

MODELS = {"Shared-Bottom": "shared_bottom", "OMoE": "omoe", "MMoE": "mmoe"}
NUM_EXPERTS, EXPERT_UNITS, TOWER_UNITS = 8, 16, 8
# Section 5.1: 13,056 parameters in experts and towers, divided by 100 + 2 * 8.
SHARED_UNITS = 113
INPUT_DIM = 100
RESAMPLES = 1_000
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


@dataclasses.dataclass(frozen=True)
class Synthetic(Experiment):
    """Models of two tasks, trained on data of several correlations.

    Args:
        correlations: The cosines between the tasks' weight vectors.
        c: Length of the weight vectors; see `datasets.correlated_tasks`.
        m: Number of sines in the labels.
        num_train: Training examples.
        num_held_out: Examples on which the loss is measured after every epoch.
        epochs: Passes over the training examples.
        batch_size: Examples in a step.
        starts: How many seeds in a row share a data set; each has initial weights and
            an order of the examples of its own.
        learning_rates: Of Adam: what is tried for each arm; a single one is not tuned.
    """

    correlations: tuple[float, ...] = (0.5, 0.9, 1.0)
    c: float = 1.0
    m: int = 5
    num_train: int = 50_000
    num_held_out: int = 5_000
    epochs: int = 24
    batch_size: int = 256
    starts: int = 1
    learning_rates: tuple[float, ...] = (1e-3,)

    def space(self, arm):
        several = len(self.learning_rates) > 1
        return {"learning_rate": self.learning_rates} if several else {}

    def data(self, p, seed):
        """The data set that a seed trains on."""
        return correlated_tasks(
            p,
            c=self.c,
            m=self.m,
            num_train=self.num_train,
            num_validation=self.num_held_out,
            num_test=1,
            seed=seed // self.starts,
        )

    def train(self, model, p, jobs, shared_units=SHARED_UNITS):
        """Train a model on tasks of a correlation, once for each job.

        Args:
            model: One of `MODELS`.
            p: The cosine between the weight vectors.
            jobs: A list of `Job`.
            shared_units: Width of the shared layer of `"Shared-Bottom"`.

        Returns:
            A list of dicts: the mean squared error on held-out examples, as a mean
            over the tasks, after every epoch and at the end.
        """
        fixed = {"learning_rate": self.learning_rates[0]}
        jobs = [job._replace(settings=fixed | job.settings) for job in jobs]
        found = [{}] * len(jobs)
        for places in self._by_data(jobs):
            data = self.data(p, jobs[places[0]].seed)
            runs = train_jobs(
                functools.partial(build, model, shared_units=shared_units),
                data,
                [jobs[place] for place in places],
                epochs=self.epochs,
                batch_size=self.batch_size,
            )
            for place, copy in zip(places, runs.copies, strict=True):
                found[place] = read(copy.logs, data.task_names)
        return found

    def steps(self, results, arm):
        """The training steps at which the loss was measured."""
        count = len(results.of(arm)[0].numbers["curve"])
        return (1 + np.arange(count)) * math.ceil(self.num_train / self.batch_size)

    def _by_data(self, jobs):
        """The places of the jobs that share a data set, together."""
        groups = {}
        for place, job in enumerate(jobs):
            groups.setdefault(job.seed // self.starts, []).append(place)
        return groups.values()


def build(
    model,
    seed,  # noqa: ARG001, `replicate` has seeded Keras
    learning_rate,
    shared_units=SHARED_UNITS,
):
    """A compiled model of the paper's size.

    Args:
        model: One of `MODELS`.
        seed: Of the run; Keras has been seeded with it.
        learning_rate: Of Adam.
        shared_units: Width of the shared layer of `"Shared-Bottom"`.

    Returns:
        A `MultitaskModel`.
    """
    tasks = [Task(f"task_{task}", tower=(TOWER_UNITS,)) for task in range(2)]
    experts = (
        DenseExperts(1, [shared_units])
        if model == "Shared-Bottom"
        else DenseExperts(NUM_EXPERTS, [EXPERT_UNITS])
    )
    built = build_multitask_model(
        INPUT_DIM, tasks, MODELS[model], experts=experts, per_example=True
    )
    built.compile(keras.optimizers.Adam(learning_rate))
    return built


def read(logs, tasks):
    """What is kept of a run.

    Args:
        logs: The results of each epoch.
        tasks: Names of the tasks.

    Returns:
        A dict.
    """

    def losses(prefix):
        return [
            np.mean([log[f"{prefix}{task}_loss"] for task in tasks]) for log in logs
        ]

    curve = [float(f"{loss:.4g}") for loss in losses("val_")]
    return {
        "loss": curve[-1],
        "train_loss": losses("")[-1],
        "curve": curve,
    }


def median(values):
    """The median over runs, and its standard error by drawing the runs anew.

    A run that is stuck in a poor minimum moves a mean over a few dozen runs by more
    than what is to be seen; it does not move the median.

    Args:
        values: An array (runs,) or (runs, points).

    Returns:
        A pair: numbers, or arrays (points,). The error of a single run is NaN.
    """
    values = np.asarray(values)
    middle = np.median(values, axis=0)
    if len(values) < 2:
        return middle, np.full_like(middle, math.nan)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    return middle, np.median(values[drawn], axis=1).std(axis=0)


def gaps(results, arm, other):
    """By how much the loss of each run exceeds that of its twin in another arm.

    Runs of a seed have the same inputs, and, of one model, the same initial weights.

    Args:
        results: A `Results`.
        arm: Name of an arm.
        other: Name of the other arm.

    Returns:
        An array, by seed.
    """
    mine, its = (
        {run.seed: run.numbers["loss"] for run in results.of(name)}
        for name in (arm, other)
    )
    seeds = sorted(mine.keys() & its.keys())
    return np.array([mine[seed] - its[seed] for seed in seeds])


def is_trend(results, arms):
    """Whether the mean loss falls from the first arm to the last.

    Args:
        results: A `Results`.
        arms: Names of arms, from the lowest correlation to the highest.

    Returns:
        A boolean; `None` if these runs cannot tell. Neighbours may be too close to
        tell apart, but not the wrong way round.
    """
    steps = (gaps(results, *pair) for pair in itertools.pairwise(arms))
    wrong = [False for step in steps if is_positive(*mean_and_error(step)) is False]
    whole = is_positive(*mean_and_error(gaps(results, arms[0], arms[-1])))
    return all_hold([whole, *wrong])


def curves(experiment, results, arms):
    """Mean curves and their standard errors, for `plot_curves`.

    Args:
        experiment: A `Synthetic`.
        results: A `Results`.
        arms: A dict from the names of the lines to arms.

    Returns:
        A pair of dicts by the names: curves, and errors.
    """
    lines, errors = {}, {}
    for name, arm in arms.items():
        values = results.values(arm, "curve")
        errors[name] = standard_error(values)
        lines[name] = experiment.steps(results, arm), values.mean(axis=0)
    return lines, errors


def protocol(experiment):
    """The facts that the figures on synthetic data have in common.

    Args:
        experiment: A `Synthetic`.

    Returns:
        A list of `Fact`.
    """
    silent = "The paper does not say."

    def of(write):
        return by_preset(experiment, write)

    return [
        Fact("Inputs", "100 (Section 5.1), standard normal", INPUT_DIM),
        Fact("Activations", "ReLU (Section 4.2, on MMoE)", "ReLU; linear outputs"),
        Fact(
            "Labels",
            "a linear part and m sines, with the noise N(0, 0.01) (Section 3.2)",
            of(
                lambda e: (
                    f"c = {e.c:g}; {e.m} sines of frequencies 1, 2, ... and phases "
                    "0, 1, 4, ...; 0.01 is the variance of the noise"
                )
            ),
            "The paper gives no values of c, m, the frequencies and the phases.",
        ),
        Fact(
            "Task correlations p",
            "a list; Section 5.2 names 0.5 and 1",
            of(lambda e: ", ".join(f"{p:g}" for p in e.correlations)),
        ),
        Fact(
            "Examples",
            "no number",
            of(lambda e: f"{e.num_train:,}, and {e.num_held_out:,} held out"),
            silent,
        ),
        Fact(
            "Batch size and steps",
            "no numbers",
            of(
                lambda e: (
                    f"batches of {e.batch_size}, "
                    f"{e.epochs * math.ceil(e.num_train / e.batch_size):,} steps"
                )
            ),
            silent,
        ),
        Fact(
            "Loss",
            "of one task, because the tasks are symmetric (Section 3.3)",
            "mean squared error on held-out examples, mean of both tasks",
            "The mean of two symmetric tasks has less noise. The paper does not say "
            "on which examples the loss is measured.",
        ),
        Fact(
            "Runs",
            "200, each with its own data and initial weights",
            of(
                lambda e: (
                    f"{e.seeds} for each curve; "
                    + (
                        "each has its own data"
                        if e.starts == 1
                        else f"{e.starts} in a row share a data set"
                    )
                )
            ),
            "Fewer runs, and several on one data set as one program, save time.",
        ),
    ]


def write_losses(ax):
    """Plain numbers on a logarithmic axis of losses."""
    low, high = ax.get_ylim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()


def remarks():
    """How the free choices were made."""
    return [
        (
            "The labels are the defaults of `datasets.correlated_tasks`. We did not "
            "search them. We did search the number of examples: with 10,000 and "
            "easier labels (c = 0.5, or two sines), all models overfitted, and the "
            "losses on held-out examples did not depend on the correlation."
        ),
        (
            "Claims are judged by means, as in the paper. Gaps are computed for each "
            "seed and then averaged: runs of a seed have the same inputs, and those "
            "of one model the same initial weights. A gap within two standard errors "
            "is not judged. Runs that share a data set count as independent in a "
            "standard error."
        ),
    ]
