"""Figures 6 and 7: which of many experts L_s and L_importance use."""

import dataclasses
import functools

from research.engine import Claim, Higher, all_positive, drawing, most, preset
from research.papers.specialization._images import (
    NUMBERS,
    classified,
    measured,
    reported,
)
from research.papers.specialization._methods import Tuned
from research.papers.specialization._tables import SHARE, are_used, draw_table

NEEDS, ALL = "original, L_s", "original, importance"
COLUMNS = "experts | penalty | error | I(E;Y) | H_s | H_u | experts used"
SHOWN = {NEEDS: "L_s", ALL: "L_importance"}
FIGURES = {15: "Figure 6, Section 7", 10: "Figure 7, Appendix E"}


@dataclasses.dataclass(frozen=True)
class Fig6And7(Tuned):
    """Mixtures with more experts than digits need."""

    name = "specialization-fig6-7"
    title = "L_importance uses all of many experts, L_s fewer"
    where = "Figures 6 and 7"
    looks = 3
    appendix = "B.1"

    seeds: int = preset(20, paper=10, smoke=1)
    num_experts: tuple[int, ...] = preset(tuple(FIGURES), smoke=(10,))

    @property
    def arms(self):
        return {
            arm_of(method, count): (method, count)
            for count in self.num_experts
            for method in SHOWN
        }

    def space(self, arm):
        return self.grid(self.arms[arm][0])

    def run(self, arm, jobs):
        method, count = self.arms[arm]
        data = self.data("mnist")
        models = self.teach(method, "mnist", count, data, jobs)
        if jobs[0].is_trial:
            return [classified(model, data) for model in models]
        found = [measured(model, data, count) for model in models]
        return [{**each, "used": int(are_used(each["table"]).sum())} for each in found]

    @property
    def claims(self):
        for n in self.num_experts:
            few, every = arm_of(NEEDS, n), arm_of(ALL, n)
            names = {"n": n, "figure": FIGURES[n], "few": few, "every": every}
            test = functools.partial(uses_all, arm=every, count=n)
            yield Claim("all", lambda r, test=test: most(test(r)), names)
            yield Claim("fewer", Higher(every, few, by="used"), names)
            test = functools.partial(is_as_good, arm=few, other=every)
            yield Claim("error", test, names)

    def table_best(self, results):
        yield COLUMNS
        for arm, (method, n) in self.arms.items():
            run = reported(results, arm).numbers
            numbers = (float(run[number]) for number in NUMBERS)
            yield [n, SHOWN[method], *numbers, run["used"]]

    def table_means(self, results):
        yield COLUMNS
        for arm, (method, n) in self.arms.items():
            yield [n, SHOWN[method], *results.texts(arm, *NUMBERS, "used")]

    def draw_tables(self, results):
        counts = self.num_experts
        options = {"sharey": True, "width_ratios": counts}
        figure, axes = drawing.panels(len(SHOWN), len(counts), 5.2, **options)
        for arm, (method, count) in self.arms.items():
            ax = axes[list(SHOWN).index(method), counts.index(count)]
            draw_table(ax, reported(results, arm).numbers["table"])
            drawing.label(ax, title=f"{SHOWN[method]}, {count} experts", x="expert")
        for ax in axes[:, 0]:
            drawing.label(ax, y="digit")
        drawing.color_bar(figure, axes[0, 0].collections[0], axes, SHARE)
        return figure


def uses_all(results, arm, count):
    """For each run, whether it uses all experts."""
    return results.values(arm, "used") == count


def is_as_good(results, arm, other):
    """Judge whether an error is at most 5 % larger than another."""
    gap = -results.gap(arm, other, "error")
    return all_positive([gap], over=-0.05 * results.mean(other, "error"))


def arm_of(method, count):
    """The name of an arm."""
    return f"{method}, {count} experts"
