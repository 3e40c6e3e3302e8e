"""Every architecture on census data: a test of the package, not a ranking."""

import dataclasses
import functools
from typing import Any

import keras

from dselectk_keras import (
    ChosenGate,
    DenseExperts,
    DSelectKGate,
    Task,
    build_multitask_model,
)
from dselectk_keras.models.architectures import ARCHITECTURES
from dselectk_keras.tables.scores import area_under_curve
from research.engine import Arm, Experiment, train_jobs
from research.papers.data import census_income

TASKS = ("income", "never_married")
# Architectures that are not those of a paper's comparison.
BUILDERS = [
    name for name, f in ARCHITECTURES.items() if "baselines" not in f.__module__
]


@dataclasses.dataclass(frozen=True)
class Census(Experiment):
    """Each model is trained on the people of the test file, with nothing tuned."""

    name = "census"
    title = "every architecture on census data"
    needs = ("census-income.test.gz", 500)
    together = 3
    tolerances = dict.fromkeys(TASKS, 0.003)
    page = """\
{table_areas}

Means and standard deviations of three seeds; \
`python scripts/reproduce.py census --data-dir DATA`, {machines}."""

    seeds: int = 3
    num_experts: int = 8
    units: int = 16
    tower: int = 8
    epochs: int = 4
    batch_size: int = 512
    learning_rate: float = 0.002

    @property
    def arms(self):
        """Each architecture with its default gate, and two static gates."""
        seeing = {name: Arm("softmax", name, per_example=True) for name in BUILDERS}
        return seeing | {
            "mmoe, DSelectKGate": Arm(lambda: DSelectKGate(2, gamma=3.0), decide=True),
            "mmoe, ChooseExperts": Arm(lambda: ChosenGate(2), choose=True),
        }

    def run(self, arm, jobs):
        """Train all jobs together, and measure the test AUC of each task."""
        data = load(self.data_dir)
        runs = train_jobs(
            lambda _: self.build(self.arms[arm], data.train.x.shape[1]),
            data,
            jobs,
            decide=self.arms[arm].decide,
            choose=self.arms[arm].choose,
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        found = []
        for copy in runs.copies:
            scores = copy.model.predict(data.test.x, batch_size=4096, verbose=0)
            areas = [
                area_under_curve(labels, scores[name][:, 0])
                for name, labels in zip(TASKS, data.test.y.T, strict=True)
            ]
            found.append(dict(zip(TASKS, areas, strict=True)))
        return found

    def build(self, arm, num_inputs):
        """Build the compiled model of an arm."""
        make: Any = arm.gate
        model = build_multitask_model(
            num_inputs,
            [Task(name, "binary", tower=(self.tower,)) for name in TASKS],
            arm.architecture,
            experts=DenseExperts(self.num_experts, [self.units]),
            gate=make if isinstance(make, str) else make(),
            per_example=arm.per_example,
        )
        model.compile(keras.optimizers.Adam(self.learning_rate))
        return model

    def table_areas(self, results):
        """The AUC of both tasks."""
        rows = [
            [arm, *(results.spread(arm, name, 4) for name in TASKS)]
            for arm in self.arms
        ]
        return ["model | AUC of income: | AUC of never married:", *rows]


@functools.cache
def load(data_dir):
    """The data, which all models share."""
    return census_income(test_file_only=True, data_dir=data_dir)
