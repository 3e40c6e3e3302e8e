"""The fields of a training run, which are options of the command line too."""

import dataclasses
from typing import Any


def field(default, text) -> Any:
    """A field with a default, and what it is."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class TrainingFields:
    """What one training is: see the text of each field. It imports no Keras."""

    data: str = field("synthetic_moe", "name of the data set: see docs/datasets.md")
    data_options: dict = dataclasses.field(
        default_factory=dict,
        metadata={"help": "arguments of the data set, such as '{\"num_train\": 1000}'"},
    )
    architecture: str = field("mmoe", "name of the architecture")
    architecture_options: dict = dataclasses.field(
        default_factory=dict,
        metadata={"help": "options of the architecture, such as '{\"levels\": 3}'"},
    )
    gate: str = field("dselect_k", "name of the gate")
    gate_options: dict = dataclasses.field(
        default_factory=dict,
        metadata={"help": "arguments of the gate, such as '{\"expert_dropout\": 0.1}'"},
    )
    num_nonzeros: int = field(4, "largest number of experts per task, for sparse gates")
    gamma: float = field(3.0, "width of DSelect-k's smooth step")
    entropy: tuple[float, float] | None = field(
        None,
        "entropy weight of DSelect-k at the start and at the end of training, with an "
        "exponential ramp between them; none if omitted",
    )
    decide_by: float = field(
        0.5,
        "part of the training after which gates with selectors decide on their "
        "experts, and experts chosen by fit stay; 0 leaves it to the entropy term",
    )
    per_example: bool = field(
        False,
        "compute the gate weights from each example's features, as gates that cannot "
        "be static always do",
    )
    num_experts: int | None = field(
        None, "number of experts; if omitted, that of the data set, or 8"
    )
    units: tuple[int, ...] | None = field(None, "units of each layer of an expert")
    epochs: int = field(50, "number of training epochs")
    batch_size: int = field(256, "examples per training step")
    learning_rate: float = field(0.01, "learning rate of Adam")
    seed: int = field(
        0, "seed of the data, the initial weights and the order of the examples"
    )
