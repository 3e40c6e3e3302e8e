"""The gate of a condensed layer."""

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.gate import Gate, GateOutputs
from dselectk_keras.gates.selection import Selection
from dselectk_keras.ops import softmax


@keras.saving.register_keras_serializable(package="dselectk_keras")
class SelectedGate(Gate):
    r"""Weights on experts that are settled, such as those of a gate that has decided.

    $$
    g_i = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \, [c_s = i]
    $$

    The choices $c$ are constants, the shares $\alpha$ are trained on. `condense`
    puts it in the place of a static gate; it computes what the gate computed there.

    Args:
        choices: The chosen experts, a list of $k$ numbers, or one such list for each
            gate. -1 stands for a selector on a code without an expert: its share
            is lost.
        kept: Of a condensed bank, the numbers that its experts had before; `None`
            is all of them, in order.
        num_before: Of a condensed bank, the number of experts before.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        experts, routing_inputs, training: See `Gate`.

    Example:
        >>> gate = SelectedGate(choices=[3, 1])
        >>> mixed = gate([keras.ops.ones((1, 2))] * 4)
        >>> keras.ops.convert_to_numpy(gate.expert_weights()).tolist()
        [0.0, 0.5, 0.0, 0.5]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 2: training once the
        experts are settled.
    """

    def __init__(self, choices, kept=None, num_before=None, **kwargs):
        super().__init__(**kwargs)
        self.choices = np.asarray(choices, "int32").tolist()
        self.kept = None if kept is None else [int(i) for i in kept]
        self.num_before = num_before

    def build_logits(self):
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
                "Settled choices are the same for all examples. Received: routing "
                "inputs. Call the gate on the experts alone."
            )
        self._shares = self.add_weight(
            name="w_logits",
            shape=choices.shape,
            initializer="zeros",
            dtype="float32",
            autocast=False,
        )

    def compute_weights(self, routing_inputs, training, step) -> GateOutputs:
        """The shares, each on its expert."""
        shares = softmax(ops.convert_to_tensor(self._shares))
        places = self._places().astype("float32")
        placed = ops.multiply(ops.expand_dims(shares, -1), places)
        return GateOutputs(ops.sum(placed, axis=-2))

    @property
    def used_experts(self):
        """The experts that are chosen (see `Gate`)."""
        return self._places().any(axis=-2)

    def describe_selectors(self, outputs):
        """All selectors have decided; those without an expert reach none.

        Args:
            outputs: Not needed.

        Returns:
            A dict of arrays `([num_gates,] k)`.
        """
        reached = np.asarray(self.choices) >= 0
        return {
            "binary": ops.convert_to_tensor(np.ones(reached.shape, "float32")),
            "reachable": ops.convert_to_tensor(reached.astype("float32")),
        }

    def selection(self):
        """The choices, with the logits of their shares.

        Returns:
            A `Selection`; its distances are 0.
        """
        choices = np.asarray(self.choices)
        return Selection(
            choices, np.zeros(choices.shape), self._shares, lambda logits: logits
        )

    def _places(self):
        """Whether a choice is an expert, booleans `([num_gates,] k, n)`."""
        return np.asarray(self.choices)[..., None] == np.arange(self.num_experts)

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "choices": self.choices,
            "kept": self.kept,
            "num_before": self.num_before,
        }
