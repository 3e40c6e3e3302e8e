"""Table 1: which routers gain from dropping experts."""

import dataclasses

from experiments import Report, Table
from papers import citations
from papers.smear._claims import NOT_RUN, better, compare, unchanged, worse
from papers.smear._comparison import DomainComparison
from papers.smear._protocol import facts

SOURCE = "Table 1, ResNet-DomainNet"
NOTE = (
    "The claims on T5-GLUE are in [Table 2](smear-table2-small.md). Appendix C says "
    "that dropout harms REINFORCE; on ResNet-DomainNet the table has no change."
)
# Accuracy without and with dropout on ResNet-DomainNet and T5-GLUE; the two arms.
ROWS = {
    "Top-k": ("59.8", "60.0", "77.2", "78.4", "Top-k, no dropout", "Top-k"),
    "ST-Gumbel": ("58.3", "57.9", "78.3", "77.2", "ST-Gumbel", "ST-Gumbel, dropout"),
    "REINFORCE": ("59.8", "59.8", "79.8", "78.2", "REINFORCE", "REINFORCE, dropout"),
    "SMEAR": ("62.0", "62.0", "80.2", "83.1", "SMEAR, no dropout", "SMEAR"),
}


@dataclasses.dataclass(frozen=True)
class Table1(DomainComparison):
    """The routers with and without expert dropout; see `DomainComparison`."""

    name = "smear-table1"
    title = "routers with and without expert dropout"
    paper = citations.SMEAR
    where = "Table 1 on ResNet-DomainNet"
    about = (
        "The runs of [the comparison of routers](smear-table3-small.md), and those of "
        "the same routers with expert dropout of 0.1 turned on or off."
    )

    def report(self, results):
        return Report(
            self._claims(results),
            [self._table(results)],
            notes=[NOTE],
            protocol=facts(type(self)),
        )

    def _claims(self, results):
        def claim(router, does, judge, paper):
            *_, without, dropped = ROWS[router]
            says = f"Expert dropout {does} {router}."
            return compare(results, says, dropped, (without,), judge, SOURCE, paper)

        return [
            claim("Top-k", "improves", better, "+0.2"),
            claim("ST-Gumbel", "harms", worse, "-0.4"),
            claim("REINFORCE", "does not change", unchanged, "+0.0"),
            claim("SMEAR", "does not change", unchanged, "+0.0"),
        ]

    def _table(self, results):
        rows = []
        for router, (*paper, without, dropped) in ROWS.items():
            ours = [
                results.text(arm, "accuracy", scale=100) if results.of(arm) else NOT_RUN
                for arm in (without, dropped)
            ]
            rows.append([router, *paper[2:], *paper[:2], *ours])
        return Table(
            "Accuracy in percent",
            [
                "router",
                "paper, T5-GLUE, without",
                "with",
                "paper, ResNet-DomainNet, without",
                "with",
                "here, without",
                "with",
            ],
            rows,
            "The paper's numbers are of a single seed.",
        )
