"""Table 1: which routers gain from dropping experts."""

import dataclasses

from research.engine import Equal, Higher
from research.papers.smear._claims import differences
from research.papers.smear._comparison import DomainComparison

TESTS = {
    "top-k": Higher("Top-k", "Top-k, no dropout", by="accuracy"),
    "st-gumbel": Higher("ST-Gumbel", "ST-Gumbel, dropout", by="accuracy"),
    "reinforce": Equal("REINFORCE, dropout", "REINFORCE", by="accuracy", within=0.01),
    "smear": Equal("SMEAR", "SMEAR, no dropout", by="accuracy", within=0.01),
}


@dataclasses.dataclass(frozen=True)
class Table1(DomainComparison):
    """The routers with and without expert dropout; see `DomainComparison`."""

    name = "smear-table1"
    title = "routers with and without expert dropout"
    where = "Table 1 on ResNet-DomainNet"

    @property
    def claims(self):
        return differences(TESTS)
