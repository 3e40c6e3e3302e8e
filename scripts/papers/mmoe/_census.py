"""What Tables 1 and 2, on census data, have in common."""

import abc
import dataclasses
import functools
import math
from typing import Any, ClassVar

import keras
import numpy as np

from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import Task, build_multitask_model
from dselectk_keras.utils import num_trained
from experiments.area_under_curve import area_under_curve
from experiments.experiment import Experiment
from experiments.stand_in import stand_in
from experiments.train_jobs import train_jobs
from papers.data import census_income
from papers.mmoe._census_report import (
    AUXILIARY,
    SHARED,
    SINGLE,
    SINGLE_AUXILIARY,
    TENSOR,
    Published,
    census_report,
)
from papers.mmoe._tasks import only_tasks

ARCHITECTURES = {
    SINGLE: "single_task",
    SINGLE_AUXILIARY: "single_task",
    SHARED: "shared_bottom",
    "L2-constrained": "l2_constrained",
    "cross-stitch": "cross_stitch",
    TENSOR: "tensor_factorization",
    "OMoE": "omoe",
    "MMoE": "mmoe",
}
# Enough to see that everything works.
WITH_STAND_IN = (SHARED, "OMoE", "MMoE")
# The committed runs are on a part of the rows. Without this, the preset `cpu` is on all
# of them, as in the paper: about 15 minutes of two cores for each table.
COMMITTED: dict[str, Any] = {
    "num_train": 20_000,
    "num_validation": 10_000,
    "epochs": 12,
    "patience": 3,
}
CORRELATED = 10_000  # On so many examples the paper measures the labels' correlation.


@dataclasses.dataclass(frozen=True)
class Census(Experiment, abc.ABC):
    """Seven methods on two tasks about the people in a census.

    Args:
        features: A variant of `papers.data.census_income`.
        num_train: Training examples; `None` is all.
        num_validation: Validation examples; `None` is half of the test file.
        max_units: The most hidden units of a network, or of all experts together.
        tower: Width of the hidden layer of each tower.
        epochs: The most epochs of a run.
        patience: After how many epochs without a better validation a run ends.
        batch_size: Examples in a step.
    """

    group: ClassVar[int]
    correlation: ClassVar[float]  # The paper's, of the labels.
    main: ClassVar[str]
    published: ClassVar[dict[str, Published]]

    features: str = "nominal"
    num_train: int | None = None
    num_validation: int | None = None
    max_units: int = 128
    tower: int = 16
    epochs: int = 4
    patience: int = 2
    batch_size: int = 1024

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                sampler="gp", max_units=16, epochs=1, batch_size=48, stand_in=True
            ),
            "cpu": cls(seeds=6, trials=8, sampler="gp", **COMMITTED),
            "paper": cls(
                seeds=400,
                trials=2000,
                sampler="gp",
                features="all",
                max_units=2048,
                epochs=100,
                patience=10,
            ),
        }

    @property
    def arms(self):
        names = WITH_STAND_IN if self.stand_in else ARCHITECTURES
        return {name: ARCHITECTURES[name] for name in names}

    @property
    def methods(self):
        """The arms that have the main task, and are compared."""
        return [arm for arm in self.arms if arm != SINGLE_AUXILIARY]

    def space(self, arm):
        most = self.max_units
        own = {
            "L2-constrained": {"strength": (1e-7, 1e-2)},
            "cross-stitch": {"tower": (max(1, most // 16), most)},
            TENSOR: {"rank": (0.1, 0.7), "unit_rank": (0.1, 0.7), "task_rank": (1, 2)},
            "OMoE": {"num_experts": (4, 16)},
            "MMoE": {"num_experts": (4, 16)},
        }
        return {
            "learning_rate": (5e-4, 2e-2),
            "units": (max(1, most // 16), most),
            **own.get(arm, {}),
        }

    def run(self, arm, jobs):
        data = self._data(arm)

        runs = train_jobs(
            functools.partial(self._build, arm, data),
            data,
            jobs,
            epochs=self.epochs,
            batch_size=self.batch_size,
            monitor=f"val_{data.task_names[0]}_AUC",
            mode="max",
            patience=self.patience,
        )
        return [
            self._numbers(runs, number, data) | label_correlation(data, job.seed)
            for number, job in enumerate(jobs)
        ]

    def report(self, results):
        return census_report(results)

    def _data(self, arm):
        if self.stand_in:
            data = stand_in((6,), {self.main: "binary", AUXILIARY: "binary"})
        else:
            data = _load(
                group=self.group,
                features=self.features,
                num_train=self.num_train,
                num_validation=self.num_validation,
                data_dir=self.data_dir,
            )
        if arm == SINGLE:
            return only_tasks(data, {self.main: self.main})
        if arm == SINGLE_AUXILIARY:
            return only_tasks(data, {AUXILIARY: AUXILIARY})
        return data

    def _build(
        self,
        arm,
        data,
        _seed,
        learning_rate=3e-3,
        units=None,
        num_experts=8,
        rank=0.5,
        unit_rank=None,
        task_rank=2,
        tower=None,
        **options,
    ):
        inputs, units = data.train.x.shape[1], units or self.max_units
        architecture = ARCHITECTURES[arm]
        if architecture == "tensor_factorization":
            options["ranks"] = (
                math.ceil(rank * inputs),
                math.ceil((rank if unit_rank is None else unit_rank) * units),
                task_rank,
            )
        mixes = architecture in {"omoe", "mmoe"}
        experts = num_experts if mixes else 1
        model = build_multitask_model(
            inputs,
            [
                Task(name, "binary", tower=(tower or self.tower,), metrics=("AUC",))
                for name in data.task_names
            ],
            architecture,
            experts=DenseExperts(experts, [max(1, round(units / experts))]),
            per_example=True,
            **options,
        )
        model.compile(keras.optimizers.Adam(learning_rate))
        return model

    def _numbers(self, runs, number, data):
        """The areas on test data, and what tuning looks at."""
        model = runs.model(number)
        found = {
            name: area_under_curve(labels, scores)
            for name, labels, scores in _predictions(model, data.test)
        }
        _, labels, scores = next(_predictions(model, data.validation))
        return {
            "objective": 1 - area_under_curve(labels, scores),
            "epochs": runs.copies[number].best_epoch + 1,
            "num_params": num_trained(model),
            **found,
        }


def label_correlation(data, seed):
    """The correlation of the labels of two tasks, on random training examples.

    Args:
        data: A `Dataset`.
        seed: Of the draw.

    Returns:
        A dict with the absolute value of Pearson's correlation; empty for one task.
    """
    labels = data.train.y
    if labels.shape[1] < 2:
        return {}
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(labels))[:CORRELATED]
    return {"label_correlation": abs(np.corrcoef(labels[drawn].T)[0, 1])}


def about(question):
    """What a table is about.

    Args:
        question: What the main task asks of a person.

    Returns:
        A string.
    """
    return (
        f"UCI Census-Income: the main task is {question}, the auxiliary one whether "
        "they have never married. Seven methods are tuned over the same budget for "
        "the main task's area under the ROC curve (AUC) on validation data, and then "
        "trained many times from random weights."
    )


@functools.lru_cache(maxsize=1)
def _load(**options):
    return census_income(**options)


def _predictions(model, split):
    """Name, labels and scores of each task."""
    found = model.predict(split.x, batch_size=8192, verbose=0)
    for column, (name, scores) in enumerate(found.items()):
        yield name, split.y[:, column], scores[:, 0]
