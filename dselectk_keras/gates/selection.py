"""What a static gate has decided."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from keras import ops


class Selection(NamedTuple):
    """The choices of a static gate's selectors, and how settled they are.

    Args:
        choices: The expert of each selector, integers `([num_gates,] k)`; -1 for a
            code without an expert.
        distance: How far each selector is from a single expert, of the same shape:
            0.0 where it is binary.
        variable: The variable that holds the logits of the selectors' shares.
        pick: What takes those logits, of the same shape, out of an array like it.
    """

    choices: np.ndarray
    distance: np.ndarray
    variable: Any
    pick: Callable

    @property
    def logits(self):
        """The logits of the selectors' shares."""
        return self.pick(ops.convert_to_numpy(self.variable))


def require_static(gate):
    """Refuse a gate whose choices depend on the example.

    Args:
        gate: A built gate.
    """
    if not gate.built or gate.per_example:
        raise ValueError(
            f"Only a static gate that is built has decided. Received: {gate.name!r}, "
            f"{'per-example' if gate.built else 'not built'}."
        )
