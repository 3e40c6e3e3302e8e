"""Table 1: which routers gain from dropping experts."""

import dataclasses

from experiments import Claim, Equal, Higher
from papers.smear._claims import points
from papers.smear._comparison import DomainComparison

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
    where = "Table 1 on ResNet-DomainNet"

    @property
    def claims(self):
        yield Claim(
            "Table 1, ResNet-DomainNet",
            "Expert dropout improves Top-k.",
            points("Top-k", ("Top-k, no dropout",)),
            Higher("Top-k", "Top-k, no dropout", by="accuracy"),
            number="+0.2",
        )
        yield Claim(
            "Table 1, ResNet-DomainNet",
            "Expert dropout harms ST-Gumbel.",
            points("ST-Gumbel, dropout", "ST-Gumbel"),
            Higher("ST-Gumbel", "ST-Gumbel, dropout", by="accuracy"),
            number="-0.4",
        )
        yield Claim(
            "Table 1, ResNet-DomainNet",
            "Expert dropout does not change REINFORCE.",
            points("REINFORCE, dropout", "REINFORCE"),
            Equal("REINFORCE, dropout", "REINFORCE", by="accuracy", within=0.01),
            number="+0.0",
        )
        yield Claim(
            "Table 1, ResNet-DomainNet",
            "Expert dropout does not change SMEAR.",
            points("SMEAR", ("SMEAR, no dropout",)),
            Equal("SMEAR", "SMEAR, no dropout", by="accuracy", within=0.01),
            number="+0.0",
        )

    def table_accuracy(self, results):
        return [
            (
                "router | paper, T5-GLUE, without | with | paper, ResNet-DomainNet, "
                "without | with | here, without | with"
            ),
            *(
                [
                    router,
                    c,
                    d,
                    a,
                    b,
                    results.text(without, "accuracy", scale=100),
                    results.text(dropped, "accuracy", scale=100),
                ]
                for router, (a, b, c, d, without, dropped) in ROWS.items()
            ),
        ]
