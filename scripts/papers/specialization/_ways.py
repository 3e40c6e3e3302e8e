"""The runs of Table 2, which Figures 6 and 7 show as well."""

import dataclasses
from typing import Any

from dselectk_keras.experiments import difference, format_gap, is_positive
from dselectk_keras.plots import plot_runs
from papers import drawing
from papers.specialization import _mixture
from papers.specialization._images import (
    SHAPE,
    WAYS,
    Images,
    error,
    measured,
    num_classes,
)

IMPORTANCE = (0.2, 0.4, 0.6, 0.8, 1.0)
BETA_D = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
STUDENTS = {
    "distilled": "attentive",
    "distilled, importance": "attentive, importance",
    "distilled, L_s": "attentive, L_s",
}
LONG = {
    "attentive": "the attentive gate",
    "original, L_s": "the sample similarity term L_s",
    "attentive, L_s": "the attentive gate with L_s",
}
SOURCE = {
    True: "authors: one run each, the one of ten with the lowest training error, as "
    "their repository has it. Their distillation without a penalty has failed in that "
    "file. The numbers printed in the paper could not be had when this was made.",
    False: "The numbers printed in the paper could not be had when this was made, and "
    "the authors' repository has no file of them for this data set.",
}


@dataclasses.dataclass(frozen=True)
class Ways(Images):
    """Every way to train, on each data set.

    Args:
        datasets: Names of the data sets.
        ways: Names of ways to train, of `WAYS`.
        num_experts: How many experts a mixture has.
    """

    datasets: tuple[str, ...] = ("mnist", "fashion_mnist")
    ways: tuple[str, ...] = tuple(WAYS)
    num_experts: int = 5

    @classmethod
    def presets(cls):
        smoke: dict[str, Any] = {
            "trials": 1,
            "datasets": ("mnist",),
            "ways": ("original", "original, importance", "attentive"),
            "num_experts": 2,
            "epochs": 1,
            "batch_size": 48,
            "stand_in": True,
        }
        paper: dict[str, Any] = {
            "num_train": 50_000,
            "num_validation": 10_000,
            "num_test": 10_000,
            "epochs": 100,
            "batch_size": 512,
        }
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=10, trials=5),
            "paper": cls(seeds=10, trials=5, **paper),
        }

    @property
    def source(self):
        return "specialization-table2"

    @property
    def arms(self):
        return {
            arm_of(data, way): (data, way)
            for data in self.datasets
            for way in ("single", *self.ways)
        }

    @property
    def shown(self):
        """The names of the ways to train, students last."""
        students = [name for name, way in STUDENTS.items() if way in self.ways]
        return [*self.ways, *students]

    def space(self, arm):
        _, way = self.arms[arm]
        spaces: dict[str | None, dict] = {
            "importance": {"importance": IMPORTANCE},
            "similarity": {"beta_d": BETA_D},
        }
        return spaces.get(WAYS[way].penalty, {}) if way in WAYS else {}

    def run(self, arm, jobs):
        name, way = self.arms[arm]
        data = self.data(name)
        if way == "single":
            models = self.fit(self._single, data, jobs)
            return [{"error": error(model, data.test)} for model in models]
        models = self.teach(WAYS[way], self.num_experts, data, jobs)
        found = [measured(model, data, self.num_experts) for model in models]
        for numbers, model in zip(found, models, strict=True):
            numbers["objective"] = error(model, data.validation)
        if WAYS[way].gate == "attentive" and not jobs[0].is_trial:
            students = self.distilled(models, data, jobs)
            for numbers, student in zip(found, students, strict=True):
                own = measured(student, data, self.num_experts)
                numbers |= {f"distilled_{name}": value for name, value in own.items()}
        return found

    def _single(self, _):
        model = _mixture.single(SHAPE, num_classes(self.data(self.datasets[0])))
        return _mixture.compiled(model, self.learning_rate)


def arm_of(data, way):
    """The name of an arm."""
    return f"{data}: {way}"


def place_of(data, way):
    """Where the numbers of a way are kept; a student's are with its teacher's.

    Args:
        data: Name of a data set.
        way: Name of a way to train, or of a student.

    Returns:
        The name of an arm, and what the names of the numbers begin with.
    """
    if way in STUDENTS:
        return arm_of(data, STUDENTS[way]), "distilled_"
    return arm_of(data, way), ""


def gap(results, data, way, number):
    """How much a way differs from the original mixture.

    Args:
        results: A `Results`.
        data: Name of a data set.
        way: Name of a way that is no student.
        number: Name of the number.

    Returns:
        The difference, and its standard error.
    """
    return difference(results, number, arm_of(data, way), arm_of(data, "original"))


def compared(results, data, way, number):
    """A way beside the original mixture, to be read; the arguments are `gap`'s."""
    ours, original = (
        results.text(arm_of(data, each), number) for each in (way, "original")
    )
    change = format_gap(*gap(results, data, way, number), decimals=3)
    return f"{ours} against {original} bits: {change}."


def below(results, data, way, number):
    """Whether a way lowers a number; the arguments are those of `gap`.

    Returns:
        A boolean; `None` if the difference is not twice its standard error.
    """
    change, uncertain = gap(results, data, way, number)
    return is_positive(-change, uncertain)


def above(results, data, way, number):
    """Whether a way raises a number; the arguments are those of `gap`.

    Returns:
        A boolean; `None` if the difference is not twice its standard error.
    """
    return is_positive(*gap(results, data, way, number))


def draw_runs(results, data, ways, titles):
    """Every run of every way: a panel for each number.

    Args:
        results: A `Results`.
        data: Name of a data set.
        ways: Names of ways.
        titles: A dict from the names of numbers to what they are called.

    Returns:
        A matplotlib figure.
    """
    figure, axes = drawing.panels(2, -(-len(titles) // 2), 4.6, sharey=True)
    for ax, (number, title) in zip(axes.flat, titles.items(), strict=True):
        values = {}
        for way in ways:
            arm, prefix = place_of(data, way)
            values[way] = results.values(arm, prefix + number)
        plot_runs(values, label=title, ax=ax)
        ax.locator_params(axis="x", nbins=6)
    return figure
