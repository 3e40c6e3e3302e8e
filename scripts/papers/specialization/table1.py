"""Table 1: fresh experts under a gate that was trained jointly, or on a split."""

import dataclasses

from papers.specialization._splits import JOINT, SPLIT, Splits

# Test error and training loss.
PAPER = {
    "mnist": {JOINT: ("0.12", "0.19"), SPLIT: ("0.08", "0.05")},
    "fmnist_mnist": {JOINT: ("0.15", "0.28"), SPLIT: ("0.10", "0.13")},
}
TITLES = {"error": "test error", "train_loss": "training loss"}


@dataclasses.dataclass(frozen=True)
class Table1(Splits):
    """The errors and the losses of fresh experts under two gates."""

    name = "specialization-table1"
    title = "fresh experts do better under a gate that knows an equitable split"
    where = "Table 1"
