"""The softmax selector gate."""

from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.gates.chosen_experts import (
    ChosenExperts,
    log_weights,
    one_expert_each,
    places_of,
    require_static,
)
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.selector_gate import SelectorGate
from dselectk_keras.ops import MIN_TEMPERATURE, first_largest, softmax
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import Initializer, Tensor


@GATES.register("softmax_selector")
class SoftmaxSelectorGate(SelectorGate):
    r"""Weights from k selectors, each of which is a softmax over the experts.

    $$
    g = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \,
    \mathrm{softmax}\Bigl(\frac{\beta_s}{\tau}\Bigr)
    $$

    This is an ablation of DSelect-k without binary codes and smooth step. A softmax
    has no exact zeros. To make the gate sparse, anneal the temperature with
    `Ramp(1.0, 1e-16, end=steps)`, or use entropy regularization.

    Args:
        num_nonzeros: The number of selectors, $k$.
        temperature: $\tau$: a number, or a schedule of the step, at least 1e-16. At
            this bound the gradient is finite, and 0 unless logits are equal.
        entropy_reg: An `EntropyRegularizer`, or its weight as a number or schedule.
        z_initializer: For the selectors' logits, $\beta$. `None` is uniform in ±0.05.
        w_initializer: For the selectors' weights, $\alpha$. `None` is uniform in
            ±0.05.
        reduction: `"sum"` or `"mean"` of a per-example gate's penalty over the batch.
        **kwargs: `normalize`, whether to layer-normalize the routing inputs and the
            kernels of both logits, and the arguments of `Gate`.

    Example:
        >>> gate = SoftmaxSelectorGate(num_nonzeros=2, temperature=1e-16)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> int(keras.ops.sum(gate.expert_weights() > 0)) <= 2
        True

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix C.1.
    """

    def __init__(
        self,
        num_nonzeros: int = 2,
        temperature: Any = 1.0,
        entropy_reg: Any = None,
        z_initializer: Initializer = None,
        w_initializer: Initializer = None,
        reduction: str = "sum",
        **kwargs: Any,
    ):
        super().__init__(
            num_nonzeros, entropy_reg, z_initializer, w_initializer, reduction, **kwargs
        )
        if self.entropy_reg is not None and self.entropy_reg.target != "selectors":
            raise ValueError(
                "The selectors of this gate have no bits. Received: an entropy "
                f"regularizer with target={self.entropy_reg.target!r}. Use "
                'target="selectors".'
            )
        self.temperature = check_schedule(temperature, "temperature", positive=True)

    def build_logits(self) -> None:
        shape = (*self.gate_shape, self.num_nonzeros)
        z_initializer = self.z_initializer or "random_uniform"
        w_initializer = self.w_initializer or "random_uniform"
        norm = {"normalize": self.normalize}
        self._z = Logits(self, "z", (*shape, self.num_experts), z_initializer, **norm)
        self.shares = Logits(self, "w", (*shape, 1), w_initializer, **norm)

    def soft_codes(self, z, step, factor) -> Tensor:
        return softmax(z, value_at(self.temperature, step) * factor)

    def nearest_codes(self, z) -> Tensor:
        return ops.cast(first_largest(z), "float32")

    def codes_of(self, experts) -> Tensor:
        return places_of(experts, self.num_experts)

    def compute_selectors(self, codes) -> Tensor:
        return codes

    def assign_logits(self, weights: np.ndarray, slack: float) -> None:
        chosen, log_shares = one_expert_each(weights, self.num_nonzeros)
        temperature = float(value_at(self.temperature, self.step))
        z = log_weights(np.eye(self.num_experts)[chosen], slack)
        self._z.assign(max(temperature, MIN_TEMPERATURE) * z)
        self.shares.assign(log_shares[..., None])
        self.replace_choices(chosen)

    def chosen_experts(self) -> ChosenExperts:
        require_static(self)
        selectors = ops.convert_to_numpy(self.selector_outputs())
        logits = ops.convert_to_numpy(self.shares.static)[..., 0]
        distance = 1.0 - selectors.max(axis=-1)
        return ChosenExperts(selectors.argmax(axis=-1), distance, logits)
