"""Table 7: other numbers of experts."""

import dataclasses
import math
from typing import Any

import numpy as np

from dselectk_keras.experiments.compare import difference, format_gap, is_positive
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.plots import plot_curves
from papers import citations, drawing
from papers.specialization._images import NUMBERS, WAYS, Images, measured, own_numbers

SHOWN = ("original", "original, importance", "original, L_s", "attentive")


@dataclasses.dataclass(frozen=True)
class Table7(Images):
    """Mixtures of 5, 10 and 15 experts on digits.

    Args:
        num_experts: How many experts are tried.
        importance: Weight of the importance term.
        beta_d: Weight of L_s.
    """

    name = "specialization-table7"
    title = "with more experts, more of them lie idle"
    paper = citations.SPECIALIZATION
    where = "Table 7"
    about = (
        "The mixtures of [Table 2](specialization-table2.md) on MNIST, with 5, 10 and "
        "15 experts. $H_u$ can be log2 of their number at most: 2.32, 3.32 and 3.91 "
        "bits."
    )

    num_experts: tuple[int, ...] = (5, 10, 15)
    importance: float = 0.4
    beta_d: float = 1e-2

    @classmethod
    def presets(cls):
        smoke = {
            "num_experts": (2,),
            "epochs": 1,
            "batch_size": 48,
            "stand_in": True,
        }
        paper: dict[str, Any] = {
            "num_train": 50_000,
            "num_test": 10_000,
            "epochs": 100,
            "batch_size": 512,
        }
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=5),
            "paper": cls(seeds=10, **paper),
        }

    @property
    def arms(self):
        return {
            arm_of(way, count): (way, count)
            for count in self.num_experts
            for way in SHOWN
        }

    def run(self, arm, jobs):
        way, count = self.arms[arm]
        data = self.data("mnist")
        weights: dict[str | None, dict] = {
            "importance": {"importance": self.importance},
            "similarity": {"beta_d": self.beta_d},
        }
        own = weights.get(WAYS[way].penalty, {})
        jobs = [job._replace(settings=own) for job in jobs]
        models = self.teach(WAYS[way], count, data, jobs)
        return [measured(model, data, count) for model in models]

    def report(self, results):
        claims = self._idles(results)
        for count in self.num_experts:
            claims += [_raises(results, way, count) for way in SHOWN[1:]]
        rows = [
            [count, way, *own_numbers(results, arm)]
            for arm, (way, count) in self.arms.items()
        ]
        table = Table(
            "MNIST",
            ["experts", "way", *NUMBERS.values()],
            rows,
            "The numbers printed in the paper could not be had when this was made.",
        )
        caption = (
            "Entropies, information and error against the number of experts; bands are "
            "standard errors over the runs. The dotted line in the panel of H_u is an "
            "equal use of all experts."
        )
        picture = Picture("numbers", caption, lambda: self.draw(results))
        return Report(claims, [table], [picture], NOTES)

    def _idles(self, results):
        few, many = min(self.num_experts), max(self.num_experts)
        if few == many:
            return []
        arms = {count: arm_of("original", count) for count in (few, many)}
        used = difference(results, "utilization_entropy", arms[few], arms[many])
        idle = math.log2(many / few) + used[0]
        texts = {n: results.text(arm, "utilization_entropy") for n, arm in arms.items()}
        return [
            Claim(
                "The more experts, the further is the original mixture from using all.",
                f"H_u is {texts[few]} of {math.log2(few):.2f} bits with {few} experts, "
                f"and {texts[many]} of {math.log2(many):.2f} with {many}: "
                f"{format_gap(idle, used[1], decimals=2)} bits more are missing.",
                is_positive(idle, used[1]),
            )
        ]

    def draw(self, results):
        """A panel for each number, a line for each way."""
        figure, axes = drawing.panels(2, 2, 5.0)
        for ax, (number, title) in zip(axes.flat, NUMBERS.items(), strict=True):
            found = {
                way: [results.mean(arm_of(way, n), number) for n in self.num_experts]
                for way in SHOWN
            }
            errors = {
                way: [results.error(arm_of(way, n), number) for n in self.num_experts]
                for way in SHOWN
            }
            plot_curves(
                {way: (self.num_experts, values) for way, values in found.items()},
                errors=errors,
                x_label="experts",
                y_label=title,
                markers=True,
                ax=ax,
            )
            ax.set_xticks(self.num_experts)
            if number == "utilization_entropy":
                most = np.log2(self.num_experts)
                ax.plot(self.num_experts, most, ":", color=drawing.TEXT, linewidth=0.9)
        return figure


NOTES = [
    (
        "Ours: the weights of the penalties are the same for every number of experts "
        "(fields of the config), in place of being tuned for each; and 5,120 training "
        "images and fewer epochs in the preset `cpu`. The distilled gates are left "
        "out. The claims are in our words, and were not compared with the paper's text."
    ),
    (
        "$L_s$ divides $\\beta_d$ by $M^2 - M$, so that the same weight does less with "
        "more experts: its lines say little about what a tuned weight would do there."
    ),
]


def arm_of(way, count):
    """The name of an arm.

    Args:
        way: Name of a way to train.
        count: How many experts there are.
    """
    return f"{way}, {count} experts"


def _raises(results, way, count):
    arm, original = arm_of(way, count), arm_of("original", count)
    used = difference(results, "utilization_entropy", arm, original)
    sure = difference(results, "sample_entropy", arm, original)
    return Claim(
        f"{count} experts: '{way}' raises H_u, against the original mixture.",
        f"H_u changes by {format_gap(*used, decimals=3)} bits, H_s by "
        f"{format_gap(*sure, decimals=3)}.",
        is_positive(*used),
    )
