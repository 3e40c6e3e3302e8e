"""The experts that a static gate has chosen."""

from typing import Any, NamedTuple

import numpy as np


class ChosenExperts(NamedTuple):
    """The experts that a static gate has chosen.

    Args:
        choices: The expert of each selector, integers `([num_gates,] k)`; -1 for a
            code without an expert.
        distance: The distance of each selector from a single expert, of the same
            shape; 0.0 for a binary selector.
        logits: The logits of the selectors' shares, of the same shape.
    """

    choices: np.ndarray
    distance: np.ndarray
    logits: np.ndarray


def require_static(gate: Any) -> None:
    """Raise an error for a gate that is per-example or not built."""
    if not gate.built or gate.per_example:
        raise ValueError(
            "Only a static gate that is built has chosen experts. Received: "
            f"{gate.name!r}, {'per-example' if gate.built else 'not built'}. Of a "
            "per-example gate, `condense` takes `data` and `experts`."
        )
