"""Table 1: which routers gain from dropping experts."""

import dataclasses

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
