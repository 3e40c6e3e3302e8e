"""Figures 6 and 7: which of many experts L_s and L_importance use."""

import dataclasses
from typing import Any

from research.engine import Claim, Higher, all_positive, drawing, most, preset
from research.engine.claims import in_turns
from research.papers.specialization._images import (
    NUMBERS,
    classified,
    measured,
    reported,
)
from research.papers.specialization._methods import Tuned
from research.papers.specialization._tables import SHARE, USED, are_used, draw_table

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
    appendix = "B.1"

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
        return in_turns(claims_of, self.num_experts)

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

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {"USED": USED}

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


def claims_of(n):
    """The claims on so many experts."""
    few, every = arm_of(NEEDS, n), arm_of(ALL, n)
    yield Claim(
        FIGURES[n],
        f"{n} experts: L_importance uses all of them.",
        lambda r: (
            f"In {(r.values(every, 'used') == n).sum()} of {len(r.of(every))} runs "
            f"(most count, by a sign test); {r.text(every, 'used')} experts on average."
        ),
        lambda r: most(r.values(every, "used") == n),
    )
    yield Claim(
        FIGURES[n],
        f"{n} experts: L_s uses fewer experts than L_importance.",
        lambda r: (
            f"{r.text(few, 'used')} against {r.text(every, 'used')} experts; H_u "
            f"differs by {r.gap(few, every, 'utilization_entropy'):2} bits."
        ),
        Higher(every, few, by="used"),
    )
    yield Claim(
        "Section 6, last sentence",
        f"{n} experts: L_s has no larger error than L_importance. (By 5 % of it, "
        "here.)",
        lambda r: (
            f"{r.text(few, 'error')} against {r.text(every, 'error')}: "
            f"{r.gap(few, every, 'error')}."
        ),
        lambda r: all_positive(
            [-r.gap(few, every, "error")], over=-0.05 * r.mean(every, "error")
        ),
        number="no number",
    )


def arm_of(method, count):
    """The name of an arm."""
    return f"{method}, {count} experts"
