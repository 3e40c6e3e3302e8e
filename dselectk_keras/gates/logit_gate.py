"""The base class of gates with one logit for each expert."""

import abc
import math
from typing import Any

import keras
import numpy as np

from dselectk_keras.gates.chosen_experts import check_expert_weights, log_weights
from dselectk_keras.gates.dropout import drop_logits
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.inputs import RouterInputs
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.routing import Routing
from dselectk_keras.regularizers import RouterZRegularizer
from dselectk_keras.utils import Initializer, Tensor, check_flags, get_from


class LogitGate(Gate, abc.ABC):
    """A gate that computes its weights from one logit for each expert.

    A subclass computes them in `compute_weights`, from `kept_logits`. It returns the
    logits of all experts too, for the router z-loss.

    The arguments are those of `SoftmaxGate`.
    """

    def __init__(
        self,
        kernel_initializer: Initializer = None,
        use_bias: bool = False,
        normalize: bool = False,
        z_reg: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if isinstance(kernel_initializer, int):
            raise ValueError(
                f"The first argument of `{type(self).__name__}` is "
                "`kernel_initializer`, not a number of experts. Received: "
                f"kernel_initializer={kernel_initializer}. To choose several experts, "
                "use `TopKGate(num_nonzeros)`."
            )
        self.kernel_initializer = get_from(
            keras.initializers, "kernel_initializer", kernel_initializer
        )
        check_flags(use_bias=use_bias, normalize=normalize)
        self.use_bias = use_bias
        self.normalize = normalize
        self.weight_dropout = 0.0
        self.z_reg = RouterZRegularizer.get(z_reg, "z_reg")

    def build_logits(self) -> None:
        self._logits = Logits(
            self,
            "gate",
            (*self.gate_shape, self.num_experts),
            self.kernel_initializer or "random_uniform",
            self.use_bias,
            self.normalize,
        )

    def kept_logits(self, inputs: RouterInputs, training: bool) -> tuple:
        """Compute the logits, and these with minus infinity for dropped experts."""
        logits = self._logits(inputs.routing_inputs)
        return logits, self.drop_by_logits(logits, training)

    def drop_by_logits(self, logits: Tensor, training: bool) -> Tensor:
        """Set the logits of experts that training drops to minus infinity."""
        rate = self.expert_dropout if training else 0.0
        return drop_logits(logits, rate, self.generator)

    def compute_penalties(self, routing: Routing, step: Tensor) -> dict:
        if self.z_reg is None:
            return {}
        # The logarithm of the sum of these exponentials is zero.
        padding = -math.log(self.num_experts)
        return {"z": routing.penalty(self.z_reg, routing.logits, step, padding)}

    def assign_logits(self, weights: np.ndarray, slack: float) -> None:
        weights = check_expert_weights(weights, self.num_experts)
        self._logits.assign(log_weights(weights, slack))
