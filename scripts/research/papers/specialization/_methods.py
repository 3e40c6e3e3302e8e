"""Mixtures with tuned penalties: nine methods, for Tables 2, 3 and 7."""

import abc
import dataclasses
import functools
import itertools
from typing import Any, ClassVar

import numpy as np

from dselectk_keras.plots import plot_runs
from research.engine import (
    NOT_RUN,
    UNTESTABLE,
    Claim,
    Judged,
    all_positive,
    drawing,
    gap_of,
    preset,
)
from research.engine.plan import price
from research.engine.results import format_mean
from research.papers.specialization import _images, _mixture
from research.papers.specialization._images import METHODS, NUMBERS, Images
from research.papers.specialization._mixture import DATA

STUDENTS = {
    "distilled, importance": "attentive, importance",
    "distilled, L_s": "attentive, L_s",
}
PENALIZED = [
    (method, gate) for gate in ("original", "attentive") for method in STUDENTS.values()
]
# With L_s and with L_importance, for the gates that both penalties meet.
WITH_BOTH = [
    (f"{gate}, L_s", f"{gate}, importance")
    for gate in ("original", "attentive", "distilled")
]
H_S, H_U = "sample_entropy", "utilization_entropy"
GATES, WITH_L_S = [("attentive", "original")], [("attentive, L_s", "original")]


def lower(number, pairs, sign=-1, least=False):
    """Arguments of `compare`: the first of each pair is lower, or with `least` as low.

    With a `sign` of 1, it is higher.
    """
    return {"number": number, "pairs": pairs, "sign": sign, "least": least}


higher = functools.partial(lower, sign=1)
TESTS: dict[str, dict] = {
    "error": lower("error", GATES),
    "penalized-h-u": higher(H_U, PENALIZED),
    "penalized-h-s": lower(H_S, PENALIZED),
    "l-s-error": lower("error", WITH_BOTH),
    "l-s-h-u": higher(H_U, WITH_BOTH, least=True),
    "l-s-h-s": lower(H_S, WITH_BOTH),
    "alone": lower(H_S, GATES),
    "students": lower("error", [*STUDENTS.items()], least=True),
    "l-s-better": lower("error", WITH_L_S),
    "l-s-information": higher("mutual_information", WITH_L_S),
    "l-s-decides": lower(H_S, WITH_L_S),
}
MARGIN = 0.05  # As good: not worse by a larger share.
ALIKE = 0.01  # Numbers of the paper that differ by a smaller share are as good.
TITLES = {
    "sample_entropy": "$H_s$, bits",
    "utilization_entropy": "$H_u$, bits",
    "mutual_information": "$I(E; Y)$, bits",
    "error": "test error",
}
TENTHS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


@dataclasses.dataclass(frozen=True)
class Tuned(Images):
    r"""Mixtures whose penalties are tuned by the training error (Appendix C).

    The weights of an example sum to one, so that of L_s's two weights only
    $\beta_s / M + \beta_d / (M^2 - M)$ matters, apart from a constant.
    """

    tuned_by = "the training error"
    appendix = ""  # Of the paper, with the sizes of the networks.

    seeds: int = preset(10, smoke=1)
    sampler: str = "grid"
    trial_runs: int = preset(2, paper=5, smoke=1)
    num_train: int = 60_000
    num_test: int = 10_000
    batch_size: int = preset(512, smoke=48)
    importance: tuple[float, ...] = preset((0.2, 0.4, 0.6, 0.8, 1.0), smoke=(0.4,))
    # Weights of pairs at the same expert, and at different ones.
    beta_s: tuple[float, ...] = preset((1e-6,), paper=(1e-6, 1e-5))
    beta_d: tuple[float, ...] = preset(TENTHS, smoke=(1e-2,))

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "smallest": {name: smallest(e) for name, e in self.presets().items()},
            "price": lambda r: price(r, seeds=30),
        }

    def grid(self, method):
        """The settings that are tuned for a method: values to try, by name."""
        _, tuned = METHODS.get(method, ("", ()))
        return {name: getattr(self, name) for name in tuned}


@dataclasses.dataclass(frozen=True)
class TrainingMethods(Tuned, abc.ABC):
    """All training methods on one data set, which is named in `DATA`."""

    data_set = ""
    # The table in the paper: error, its deviation, I(E;Y), H_s and H_u, by method.
    theirs: ClassVar[dict[str, tuple]]

    # The key in the files of results.
    ways: tuple[str, ...] = tuple(METHODS)
    num_experts: int = preset(5, smoke=2)

    @property
    def arms(self):
        return {method: method for method in ("single", *self.ways)}

    @property
    def shown(self):
        """The names of the training methods, students last."""
        students = [name for name, method in STUDENTS.items() if method in self.ways]
        return ["single", *self.ways, *students]

    def space(self, arm):
        return self.grid(arm)

    def run(self, arm, jobs):
        name, data = self.data_set, self.data(self.data_set)
        if arm == "single":
            models = self.fit(lambda: _mixture.single(DATA[name]), data, jobs)
        else:
            models = self.teach(arm, name, self.num_experts, data, jobs)
        if arm == "single" or jobs[0].is_trial:
            return [_images.classified(model, data) for model in models]
        found = [_images.measured(model, data, self.num_experts) for model in models]
        if arm in STUDENTS.values():
            students = self.distilled(models, data, jobs)
            for numbers, student in zip(found, students, strict=True):
                own = student, data, self.num_experts
                numbers.update(_images.measured(*own, prefix="distilled_"))
        return found

    def best(self, results, method):
        """The numbers of the run that the paper would report, as cells."""
        arm, prefix = place_of(method)
        run = _images.reported(results, arm, prefix).numbers
        deviation = values_of(results, method, "error").std(ddof=min(1, self.seeds - 1))
        others = (run.get(prefix + number, np.nan) for number in NUMBERS[1:])
        error = f"{run[prefix + 'error']:.3f} ± {deviation:.3f}"
        return [error, *(format_mean(other, np.nan) for other in others)]

    def compare(self, results, number, pairs, sign, least=False):
        """Compare methods by a number.

        The first of each pair should be lower (`sign` -1) or higher (1), or with
        `least` as good. A pair for which the paper's own table says the contrary of
        its text is shown, but not judged. Gives our numbers, as text, and whether the
        claim holds. Entropies of images are judged by their logarithms,
        because in some runs they are many times the usual. The paper's differences
        decide what is below half of them, if they are of the same data.
        """
        texts, gaps, effects = [], [], []
        scale = np.log if number == "sample_entropy" else np.asarray
        compared = self.in_paper(number, pairs, sign, least)
        for (method, other), (values, judged) in zip(pairs, compared, strict=True):
            text = NOT_RUN
            if {method, other} <= set(self.shown):
                mine, its = (values_of(results, m, number) for m in (method, other))
                text = f"{gap_of(mine - its):3}"
                if judged:
                    gap = gap_of(sign * (scale(mine) - scale(its)))
                    gaps.append(gap.above(-MARGIN * its.mean() if least else 0))
                    effects.append(0 if least else sign * np.subtract(*scale(values)))
            texts.append(f"{method} against {other}: {text}")
        if compared[0][1] and not gaps:
            holds = NOT_RUN
        else:
            contrary = Judged(UNTESTABLE, why="The paper's table says the contrary.")
            known = None if self.stands_in_for else effects
            holds = all_positive(gaps, known) if gaps else contrary
        return "; ".join(texts) + ".", holds

    def in_paper(self, number, pairs, sign, least=False):
        """Numbers of the paper for each pair of methods, and whether they agree."""
        place, found = NUMBERS.index(number), []
        for pair in pairs:
            one, other = (self.theirs[method][place + (place > 0)] for method in pair)
            slack = ALIKE * other if least else 0
            found.append(((one, other), sign * (one - other) >= -slack))
        return found

    def claim(self, name, asked):
        """A claim that methods are lower or higher in a number; see `compare`."""
        theirs = (
            " against ".join(map(exact, values)) + ("" if agrees else " (contrary)")
            for values, agrees in self.in_paper(**asked)
        )
        compare = functools.partial(self.compare, **asked)
        names = {"theirs": "; ".join(theirs), "compared": lambda r: compare(r)[0]}
        return Claim(name, lambda r: compare(r)[1], names)

    @property
    def claims(self):
        yield from itertools.starmap(self.claim, TESTS.items())

    def table_best(self, results):
        yield (
            "way | error | I(E;Y) | H_s | H_u | error, paper | I(E;Y), paper | H_s, "
            "paper | H_u, paper"
        )
        for method in self.shown:
            mean, deviation, *others = self.theirs[method]
            theirs = f"{mean:.3f} ± {deviation:.3f}", *map(exact, others)
            yield [method, *self.best(results, method), *theirs]

    def table_means(self, results):
        yield "way | error | I(E;Y) | H_s | H_u"
        for method in self.shown:
            arm, begin = place_of(method)
            yield [method, *results.texts(arm, *(begin + number for number in NUMBERS))]

    def draw_runs(self, results):
        figure, axes = drawing.panels(2, 2, 4.6, sharey=True)
        for ax, (number, title) in zip(axes.flat, TITLES.items(), strict=True):
            values = {m: values_of(results, m, number) for m in self.shown[1:]}
            plot_runs(values, label=title, highlight=self.shown[-1], ax=ax)
        return figure


def smallest(experiment):
    """The smallest weight of L_s that is tried, in terms of what matters."""
    count = np.max(experiment.num_experts)
    return min(experiment.beta_s) / count + min(experiment.beta_d) / (count**2 - count)


def exact(value):
    """A number of the paper as it stands there."""
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value}"


def place_of(method):
    """The arm of a method, a student's is its teacher's, and how its numbers begin."""
    return (STUDENTS[method], "distilled_") if method in STUDENTS else (method, "")


def values_of(results, method, number):
    """A number of every run of a method."""
    arm, prefix = place_of(method)
    return results.values(arm, prefix + number)
