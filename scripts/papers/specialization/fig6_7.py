"""Figures 6 and 7: which of many experts L_s and L_importance use."""

import dataclasses

import numpy as np

from experiments import (
    Claim,
    Fact,
    Picture,
    Report,
    Table,
    difference,
    format_gap,
    is_positive,
)
from papers import citations, drawing
from papers.specialization._images import (
    NUMBERS,
    WAYS,
    classified,
    measured,
    own_numbers,
    reported,
)
from papers.specialization._splits import used
from papers.specialization._tables import SHARE, USED, draw_table
from papers.specialization._tuned import Tuned

NEEDS, ALL = "original, L_s", "original, importance"
SHOWN = {NEEDS: "L_s", ALL: "L_importance"}
FIGURES = {15: "Figure 6, Section 7", 10: "Figure 7, Appendix E"}


@dataclasses.dataclass(frozen=True)
class Fig6And7(Tuned):
    """Mixtures with more experts than digits need.

    Args:
        num_experts: How many experts are tried.
    """

    name = "specialization-fig6-7"
    title = "L_importance uses all of many experts, L_s fewer"
    paper = citations.SPECIALIZATION
    where = "Figures 6 and 7"
    about = (
        "Mixtures of 15 and of 10 experts classify digits, trained with "
        "$L_{importance}$ or with $L_s$. The expert selection table counts which "
        "expert has the largest weight for the test images of each digit."
    )

    num_test: int = 10_000
    num_experts: tuple[int, ...] = tuple(FIGURES)

    @classmethod
    def presets(cls):
        return cls.on_small_images(num_experts=(10,))

    @property
    def arms(self):
        return {
            arm_of(way, count): (way, count)
            for count in self.num_experts
            for way in SHOWN
        }

    def space(self, arm):
        return self.grid(self.arms[arm][0])

    def run(self, arm, jobs):
        way, count = self.arms[arm]
        data = self.data("mnist")
        models = self.teach(WAYS[way], "mnist", count, data, jobs)
        if jobs[0].is_trial:
            return [classified(model, data) for model in models]
        found = [measured(model, data, count) for model in models]
        for numbers in found:
            numbers["used"] = used(numbers["table"])
        return found

    def report(self, results):
        claims = [
            claim
            for count in self.num_experts
            for claim in (
                self._all(results, count),
                self._fewer(results, count),
                self._as_good(results, count),
            )
        ]
        columns = ["experts", "penalty", *NUMBERS.values(), "experts used"]
        best = [
            [
                count,
                SHOWN[way],
                *(float(run.numbers[name]) for name in NUMBERS),
                run.numbers["used"],
            ]
            for arm, (way, count) in self.arms.items()
            for run in [reported(results, arm)]
        ]
        means = [
            [count, SHOWN[way], *own_numbers(results, arm), results.text(arm, "used")]
            for arm, (way, count) in self.arms.items()
        ]
        note = (
            f"Used is an expert that is chosen for at least {USED:.0%} of the images. "
            "The claims are judged by these means."
        )
        tables = [
            Table("The runs with the lowest training errors", columns, best),
            Table("Means over all runs", columns, means, note),
        ]
        caption = (
            "Expert selection tables of the runs with the lowest training errors: what "
            "share of each digit chooses each expert, from none (white) to all (dark). "
            "Experts are in the order of the digits they get, unused ones last."
        )
        picture = Picture("tables", caption, lambda: self.draw(results))
        return Report(claims, tables, [picture], protocol=self.protocol())

    def _all(self, results, count):
        runs = results.values(arm_of(ALL, count), "used")
        every = int((runs == count).sum())
        return Claim(
            f"{count} experts: L_importance uses all of them.",
            f"In {every} of {len(runs)} runs (more than half count); "
            f"{results.text(arm_of(ALL, count), 'used')} experts on average.",
            every > len(runs) / 2,
            source=FIGURES[count],
        )

    def _fewer(self, results, count):
        arms = arm_of(NEEDS, count), arm_of(ALL, count)
        fewer, bits = (
            difference(results, number, *arms)
            for number in ("used", "utilization_entropy")
        )
        texts = " against ".join(results.text(arm, "used") for arm in arms)
        return Claim(
            f"{count} experts: L_s uses fewer experts than L_importance.",
            f"{texts} experts; H_u differs by {format_gap(*bits, decimals=2)} bits.",
            is_positive(-fewer[0], fewer[1]),
            source=FIGURES[count],
        )

    def _as_good(self, results, count):
        arms = arm_of(NEEDS, count), arm_of(ALL, count)
        gap = difference(results, "error", *arms)
        texts = " against ".join(results.text(arm, "error") for arm in arms)
        return Claim(
            f"{count} experts: L_s has no larger error than L_importance.",
            f"{texts}: {format_gap(*gap)}.",
            is_positive(*gap) is not True,
            source="Section 6, last sentence",
            paper="no number",
        )

    def protocol(self):
        """The facts of the paper's protocol."""
        return [
            *self.sizes(60_000, 10_000, "Appendix B.1"),
            Fact("Experts", "15 and 10", self.both("num_experts")),
            Fact("Networks", "Appendix B.1", "the same but for the last layer"),
            Fact("Learning rate", "0.001", self.both("learning_rate")),
            Fact("Epochs", "20", self.both("epochs")),
            Fact(
                "Batch size",
                "not given",
                self.both("batch_size"),
                "512 is the authors' code's; the preset `cpu` has fewer images.",
            ),
            Fact(
                "Pixels", "not given", "mean 0, variance 1", "As in the authors' code."
            ),
            self.fact("Runs", "10 (Section 7); each figure shows one", "seeds"),
            Fact("Gate", "not given", "original", "As in the authors' code."),
            *self.tuning(("1e-6, 1e-5", "0.1, 0.01, ..., 1e-6")),
            Fact(
                "Weights in these figures",
                "not given",
                "tuned as above",
                "The authors' code has 1.0 for L_importance, and tries no others here.",
            ),
        ]

    def draw(self, results):
        """A table for each penalty (row) and number of experts (column)."""
        figure, axes = drawing.panels(
            len(SHOWN),
            len(self.num_experts),
            5.2,
            sharey=True,
            width_ratios=self.num_experts,
        )
        for arm, (way, count) in self.arms.items():
            row = axes[list(SHOWN).index(way)]
            ax = row[self.num_experts.index(count)]
            draw_table(ax, np.array(reported(results, arm).numbers["table"]))
            drawing.label(ax, title=f"{SHOWN[way]}, {count} experts", x="expert")
        for ax in axes[:, 0]:
            drawing.label(ax, y="digit")
        drawing.color_bar(figure, axes[0, 0].collections[0], axes, SHARE)
        return figure


def arm_of(way, count):
    """The name of an arm.

    Args:
        way: Name of a way to train.
        count: How many experts there are.
    """
    return f"{way}, {count} experts"
