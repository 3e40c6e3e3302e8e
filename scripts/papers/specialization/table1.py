"""Table 1: fresh experts under a gate that was trained jointly, or on a split."""

import dataclasses

from experiments import (
    Claim,
    Question,
    Report,
    Table,
    difference,
    format_gap,
    is_positive,
)
from papers import citations
from papers.specialization._images import DATA
from papers.specialization._splits import JOINT, SPLIT, Splits, arm_of

# Test error and training loss.
PAPER = {
    "mnist": {JOINT: (0.12, 0.19), SPLIT: (0.08, 0.05)},
    "fmnist_mnist": {JOINT: (0.15, 0.28), SPLIT: (0.10, 0.13)},
}
TITLES = {"error": "test error", "train_loss": "training loss"}


@dataclasses.dataclass(frozen=True)
class Table1(Splits):
    """The errors and the losses of fresh experts under two gates."""

    name = "specialization-table1"
    title = "fresh experts do better under a gate that knows an equitable split"
    paper = citations.SPECIALIZATION
    where = "Table 1"
    about = (
        "Does a mixture split the classes badly because a good split would not serve "
        "it? (a) A gate is trained jointly with its experts. (b) Experts are trained "
        "on pairs of classes, and a gate is trained on these frozen experts. Then each "
        "gate is frozen, and fresh experts are trained under it. "
        "[Figures 2 and 3](specialization-fig2-3.md) show the gates."
    )

    def report(self, results):
        claims = [
            self._lower(results, name, number, place)
            for name in self.datasets
            for place, number in enumerate(TITLES)
        ]
        questions = [self._joint(results, name) for name in self.datasets]
        rows = [
            [
                DATA[name].title,
                kind,
                results.text(arm_of(name, kind), "error"),
                f"{PAPER[name][kind][0]:.2f}",
                results.text(arm_of(name, kind), "train_loss"),
                f"{PAPER[name][kind][1]:.2f}",
            ]
            for name in self.datasets
            for kind in (JOINT, SPLIT)
        ]
        columns = ["data", "gate", "test error", "paper", "training loss", "paper"]
        note = "Means over the runs. The training loss is that of the trained model."
        table = Table("Errors and losses", columns, rows, note)
        return Report(claims, [table], questions=questions, protocol=self.protocol())

    def _lower(self, results, name, number, place):
        arms = [arm_of(name, kind) for kind in (SPLIT, JOINT)]
        gap, error = difference(results, number, *arms)
        ours = " against ".join(results.text(arm, number) for arm in arms)
        theirs = " against ".join(
            f"{PAPER[name][kind][place]:.2f}" for kind in (SPLIT, JOINT)
        )
        return Claim(
            f"{DATA[name].title}: under the gate of an equitable split (b), fresh "
            f"experts have a lower {TITLES[number]} than under the joint gate (a).",
            f"{ours}: {format_gap(gap, error)}.",
            is_positive(-gap, error),
            source=f"Table 1 ({'ab'[list(PAPER).index(name)]}), Section 4.2",
            paper=theirs,
        )

    def _joint(self, results, name):
        arm = arm_of(name, JOINT)
        return Question(
            f"{DATA[name].title}: how good are the experts that were trained with the "
            "joint gate?",
            f"Test error {results.text(arm, 'gate_error')}; fresh experts under the "
            f"same gate {results.text(arm, 'error')}.",
        )
