"""The experts that a static gate has chosen."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from dselectk_keras.utils import Tensor


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


def places_of(choices: Tensor, num_experts: int) -> Tensor:
    """Compute which choice is which expert, 1.0 or 0.0, `(..., k, n)`."""
    experts = ops.arange(num_experts, dtype=choices.dtype)
    return ops.cast(ops.expand_dims(choices, -1) == experts, "float32")


def require_static(gate: Any) -> None:
    """Raise an error for a gate that is per-example or not built."""
    if not gate.built or gate.per_example:
        raise ValueError(
            "Only a static gate that is built has chosen experts. Received: "
            f"{gate.name!r}, {'per-example' if gate.built else 'not built'}. Of a "
            "per-example gate, `condense` takes `data` and `experts`."
        )
