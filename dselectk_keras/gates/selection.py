"""The experts that a static gate has chosen."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from keras import ops


class Selection(NamedTuple):
    """The experts that a static gate's selectors have chosen.

    Args:
        choices: The expert of each selector, integers `([num_gates,] k)`; -1 for a
            code without an expert.
        distance: The distance of each selector from a single expert, of the same
            shape; 0.0 for a binary selector.
        variable: The variable that holds the logits of the selectors' shares.
        pick: A function from an array of the variable's shape to these logits,
            `([num_gates,] k)`.
    """

    choices: np.ndarray
    distance: np.ndarray
    variable: Any
    pick: Callable

    @property
    def logits(self) -> np.ndarray:
        """The logits of the selectors' shares."""
        return self.pick(ops.convert_to_numpy(self.variable))


def require_static(gate: Any) -> None:
    """Raise an error for a gate that is per-example or not built."""
    if not gate.built or gate.per_example:
        raise ValueError(
            "Only a static gate that is built has a selection. Received: "
            f"{gate.name!r}, {'per-example' if gate.built else 'not built'}."
        )
