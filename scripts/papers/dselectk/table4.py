"""Table 4: when S(Z) becomes binary, and what training costs, on MovieLens."""

import dataclasses

import numpy as np

from experiments import (
    Claim,
    Fact,
    Report,
    Table,
    format_mean,
    mean_and_error,
)
from papers import citations
from papers.dselectk._gates import if_within_rules
from papers.dselectk._movielens_runs import RecordedExperiment, name_arm

STEPS = {0.1: 11.37, 0.5: 9.39, 0.9: 0.04}  # The paper's % of steps until binary.
FLOPS = {0.1: 1.5, 0.5: 1.2, 0.9: 0.6}  # The paper's, relative to Top-k.
NOTES = [
    (
        "The runs are those of [Figure 6](dselectk-fig6.md). The columns of "
        "Multi-MNIST and "
        "Multi-Fashion are measured on the runs of Table 2, and are claims of "
        "[that page](dselectk-table2.md)."
    ),
    (
        "**FLOPS** are those of the dense layers of experts and task networks: two for "
        "each weight in the forward pass, and twice as many in the backward pass. "
        "Gates do not count. With both gates, the experts that are evaluated at a step "
        "are those with a nonzero weight for any task. A weight of DSelect-k that is "
        "exactly zero has no gradient, so that its expert can be skipped."
    ),
    (
        "**Verdicts.** A cost that is as in the paper is not judged if S(Z) is not "
        "binary in some of the runs: a gate that has not decided evaluates more "
        "experts."
    ),
]


@dataclasses.dataclass(frozen=True)
class Table4(RecordedExperiment):
    """The runs of Figure 6, looked at for when they decide and what they cost."""

    name = "dselectk-table4"
    title = "steps until S(Z) is binary, and FLOPS of training relative to Top-k"
    paper = citations.DSELECT_K
    where = "Table 4"
    about = (
        "The tuned static gates of [Figure 6](dselectk-fig6.md) on MovieLens, for "
        "three weights of the two tasks, recorded after every step. Once S(Z) is "
        "binary, experts that no task uses need not be evaluated."
    )

    def report(self, results):
        return Report(
            [
                *(self._claim_steps(results, alpha) for alpha in self.alphas),
                *(self._claim_cost(results, alpha) for alpha in self.alphas),
            ],
            [self._table(results)],
            notes=[*NOTES, self.remark(results)],
            protocol=[
                *self.movielens_protocol(),
                Fact(
                    "Gates",
                    "of the tuned models of Section 4; S(Z) is written as of static "
                    "gates",
                    "static",
                ),
                Fact(
                    "FLOPS",
                    "of the MoE during training; how they are counted is not stated",
                    "of experts and task networks; see the remarks",
                ),
            ],
        )

    def _claim_steps(self, results, alpha):
        arm = name_arm("DSelect-k", alpha)
        share = results.values(arm, "decided")
        done = int(np.isfinite(share).sum())
        paper = STEPS.get(alpha, float("nan"))
        text = results.text(arm, "decided", scale=100)
        return Claim(
            f"On MovieLens with alpha {alpha}, S(Z) is binary after {paper} % of the "
            "training steps. (It holds here if it is binary as early in every run.)",
            f"Binary at the end in {done} of {len(share)} runs"
            + (f", after {text} %." if text else "."),
            bool(len(share)) and bool((100 * share <= paper).all()),
            f"Table 4, MovieLens {alpha}",
            f"{paper} %",
        )

    def _claim_cost(self, results, alpha):
        paper = FLOPS.get(alpha, float("nan"))
        ratios = self._ratios(results, alpha)
        word = "less" if paper < 1 else "more"
        mean = float(ratios.mean()) if len(ratios) else float("nan")
        return Claim(
            f"On MovieLens with alpha {alpha}, training takes {word} FLOPS than with "
            "Top-k.",
            f"{format_mean(*mean_and_error(ratios))} times Top-k's.",
            if_within_rules(
                results,
                name_arm("DSelect-k", alpha),
                bool(len(ratios)) and bool((mean < 1) == (paper < 1)),
            ),
            f"Table 4, MovieLens {alpha}",
            f"{paper} times",
        )

    def _ratios(self, results, alpha):
        """FLOPS of training relative to Top-k, seed by seed."""
        ours, theirs = (
            self._flops(results.values(name_arm(gate, alpha), "evaluated"))
            for gate in ("DSelect-k", "Top-k")
        )
        count = min(len(ours), len(theirs))
        return ours[:count] / theirs[:count]

    def _flops(self, num_experts):
        """Operations of a training step, for an example."""
        expert = 2 * self.embedding * self.units
        tower = self.units * self.tower + self.tower
        return 6 * (num_experts * expert + 2 * tower)

    def _table(self, results):
        rows = []
        for alpha in self.alphas:
            ours, theirs = (name_arm(gate, alpha) for gate in ("DSelect-k", "Top-k"))
            share = results.values(ours, "decided")
            rows.append(
                [
                    f"{alpha}",
                    f"{np.isfinite(share).sum()} of {len(share)}",
                    f"{STEPS.get(alpha, '')}",
                    results.text(ours, "decided", scale=100),
                    f"{FLOPS.get(alpha, '')}",
                    format_mean(*mean_and_error(self._ratios(results, alpha))),
                    results.text(ours, "evaluated"),
                    results.text(theirs, "evaluated"),
                ]
            )
        columns = [
            "alpha",
            "seeds with binary S(Z)",
            "paper: % of steps until binary",
            "here",
            "paper: FLOPS relative to Top-k",
            "here",
            "experts evaluated, DSelect-k",
            "Top-k",
        ]
        note = "Experts evaluated: of 8, for either task, on average over the steps."
        return Table("Steps and cost", columns, rows, note)
