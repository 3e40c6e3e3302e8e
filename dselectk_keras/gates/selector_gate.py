"""The base class of gates with selectors."""

import abc
from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.gate import Gate, GateOutputs
from dselectk_keras.ops import softmax
from dselectk_keras.regularizers.entropy import EntropyRegularizer
from dselectk_keras.utils import Initializer, Tensor, check_choice, check_count


class SelectorGate(Gate, abc.ABC):
    r"""Weights from k selectors, each of which converges to one expert.

    $$
    g = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \, r(z_s)
    $$

    A subclass creates the logits `_z` of the selectors and the logits `_w` of their
    shares, `(..., k, 1)`. It computes the selectors in `compute_selectors`.

    Args:
        num_nonzeros: The number of selectors, $k$.
        entropy_reg: An `EntropyRegularizer`, or its weight as a number or schedule.
        z_initializer: For the selectors' logits.
        w_initializer: For the logits of their shares.
        reduction: `"sum"` or `"mean"` of a per-example gate's penalties over the batch.
        **kwargs: The arguments of `Gate`.
    """

    _w: Any

    def __init__(
        self,
        num_nonzeros: int,
        entropy_reg: Any,
        z_initializer: Initializer,
        w_initializer: Initializer,
        reduction: str,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_count("num_nonzeros", num_nonzeros)
        check_choice("reduction", reduction, ("sum", "mean"))
        self.num_nonzeros = num_nonzeros
        self.entropy_reg = EntropyRegularizer.get(entropy_reg)
        self.z_initializer = keras.initializers.get(z_initializer)
        self.w_initializer = keras.initializers.get(w_initializer)
        self.reduction = reduction

    @abc.abstractmethod
    def compute_selectors(self, routing_inputs: Tensor, step: Tensor) -> tuple:
        """Compute the selectors `(..., k, n)`, and their relaxed bits or `None`."""

    def compute_weights(self, routing_inputs, training, step) -> GateOutputs:
        """Compute the weighted sum of the selectors."""
        selectors, bits = self.compute_selectors(routing_inputs, step)
        shares = softmax(self._w(routing_inputs), axis=-2)
        weights = ops.sum(shares * selectors, axis=-2)
        return GateOutputs(weights, selectors=selectors, bits=bits)

    def compute_penalties(self, outputs: GateOutputs, step: Tensor) -> dict:
        """Compute the entropy term."""
        if self.entropy_reg is None:
            return {}
        uncertain = (
            outputs.selectors
            if self.entropy_reg.target == "selectors"
            else ops.stack([outputs.bits, 1.0 - outputs.bits], axis=-1)
        )
        return {"entropy": self.over_batch(self.entropy_reg(uncertain, step), outputs)}

    def selector_outputs(self, routing_inputs: Tensor = None) -> Tensor:
        """Compute the weights of each selector over the experts.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.

        Returns:
            A float32 tensor `([batch,] [num_gates,] k, n)`.
        """
        routing_inputs = self.check_routing_inputs(routing_inputs)
        return self.compute_selectors(routing_inputs, self.step)[0]

    def get_config(self) -> dict:
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "num_nonzeros": self.num_nonzeros,
            "entropy_reg": keras.regularizers.serialize(self.entropy_reg),
            "z_initializer": keras.initializers.serialize(self.z_initializer),
            "w_initializer": keras.initializers.serialize(self.w_initializer),
            "reduction": self.reduction,
        }
