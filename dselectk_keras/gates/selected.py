"""The gate with fixed experts."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.chosen_experts import ChosenExperts
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import float32_weight
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import softmax
from dselectk_keras.utils import MAX_EXPERTS, check_count


@keras.saving.register_keras_serializable(package="dselectk_keras")
class SelectedGate(Gate):
    r"""Weights on fixed experts, such as those that a binary gate has chosen.

    $$
    g_i = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \, [c_s = i]
    $$

    The choices $c$ are constants; the shares $\alpha$ are trainable. `condense`
    replaces a static gate with this one.

    Args:
        choices: The chosen experts: a list of $k$ numbers, or one list for each gate.
            -1 is a selector on a code without an expert; its share is lost.
        kept: For a condensed bank, the previous numbers of its experts. `None` means
            that the bank has all experts, in order.
        num_before: For a condensed bank, the previous number of experts.
        **kwargs: The arguments of `Gate`.

    Example:
        >>> gate = SelectedGate(choices=[3, 1])
        >>> mixed = gate([keras.ops.ones((1, 2))] * 4)
        >>> keras.ops.convert_to_numpy(gate.expert_weights()).tolist()
        [0.0, 0.5, 0.0, 0.5]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 2: training once the
        experts are settled.
    """

    def __init__(
        self,
        choices: Any,
        kept: Sequence[int] | None = None,
        num_before: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.choices = _integers("choices", choices)
        self.kept = None if kept is None else _integers("kept", kept)
        if num_before is not None:
            check_count("num_before", num_before, maximum=MAX_EXPERTS)
        self.num_before = num_before

    def build_logits(self) -> None:
        """Create the logits of the shares."""
        choices = np.asarray(self.choices)
        if choices.shape[:-1] != self.gate_shape or choices.max() >= self.num_experts:
            raise ValueError(
                f"`choices` must have the shape {(*self.gate_shape, 'k')} and numbers "
                f"below {self.num_experts}. Received: shape {choices.shape} with the "
                f"largest {choices.max()}."
            )
        if self.per_example:
            raise ValueError(
                "Fixed choices are the same for all examples. Received: routing "
                "inputs. Call the gate as gate(experts)."
            )
        self._shares = float32_weight(self, "w_logits", choices.shape)

    def compute_weights(self, routing_inputs, training, step) -> Routing:
        """Compute the sum of the shares of each expert."""
        shares = softmax(ops.convert_to_tensor(self._shares))
        places = self._places().astype("float32")
        placed = ops.multiply(ops.expand_dims(shares, -1), places)
        return Routing(ops.sum(placed, axis=-2))

    def describe_selectors(self, routing: Routing) -> dict:
        """Return that all selectors are binary, and which of them have an expert."""
        reached = np.asarray(self.choices) >= 0
        return {
            "binary": ops.convert_to_tensor(np.ones(reached.shape, "float32")),
            "reachable": ops.convert_to_tensor(reached.astype("float32")),
        }

    def chosen_experts(self) -> ChosenExperts:
        """The choices and the logits of their shares. All distances are 0."""
        choices = np.asarray(self.choices)
        logits = ops.convert_to_numpy(self._shares)
        return ChosenExperts(choices, np.zeros(choices.shape), logits)

    def _places(self):
        """Whether a choice is expert i, booleans `([num_gates,] k, n)`."""
        return np.asarray(self.choices)[..., None] == np.arange(self.num_experts)


def _integers(name, values):
    """A list of integers, or of lists of them, from an array."""
    array = np.array(values, dtype=object)
    found = [check_count(name, value, -1, MAX_EXPERTS) for value in array.flat]
    if not array.ndim or not found:
        raise ValueError(
            f"`{name}` must hold one integer or more. Received: {name}={values!r}."
        )
    return np.reshape(found, array.shape).tolist()
