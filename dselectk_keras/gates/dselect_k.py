"""The DSelect-k gate."""

import itertools
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.chosen_experts import (
    ChosenExperts,
    one_expert_each,
    require_static,
)
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.gates.selector_gate import SelectorGate
from dselectk_keras.ops import (
    binary_codes,
    first_largest,
    selector_product,
    smooth_step,
)
from dselectk_keras.regularizers import ReachabilityRegularizer
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import Initializer, Tensor


@GATES.register("dselect_k")
class DSelectKGate(SelectorGate):
    r"""Sparse, continuously differentiable weights from k selectors over binary codes.

    $$
    g_i = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \; r_i(z_s), \qquad
    r_i(z) = \prod_{j=1}^{m} S(z_j)^{c_{ij}} (1 - S(z_j))^{1 - c_{ij}}
    $$

    $c_i$ is the binary code of expert $i$ in $m = \lceil \log_2 n \rceil$ bits, and
    $S$ is the smooth step. In training each selector converges to one expert, so that
    at most k weights are nonzero. Entropy regularization makes it converge earlier.
    With default settings the gate computes the same as the original release. Its
    weights have the same order: `[z_logits (k, 1, m), w_logits (k, 1)]`, or
    per-example `[z kernel (p, k m), z bias, w kernel (p, k), w bias]`, then the step.

    Args:
        num_nonzeros: The number of selectors, $k$, which is an upper bound on the
            number of experts of a converged gate.
        gamma: Width of the smooth step: a number, or a schedule of the step. A larger
            width delays convergence. Annealed towards 0, as Sections 3.1.3 and 3.2
            suggest, it leads every example to at most k experts.
        entropy_reg: An `EntropyRegularizer`, or its weight as a number or schedule.
        z_initializer: For the selectors' logits. `None` is uniform in ±gamma/100.
        w_initializer: For the selectors' weights. `None` is uniform in ±0.05.
        unreachable: How to treat codes that belong to no expert, when $n$ is not a
            power of two. A number or schedule is the weight of a penalty (see
            `ReachabilityRegularizer`; 1.0 in the release). `"assign"` assigns each
            code to a fixed expert, drawn at random by the `seed`, if there is one, so
            that the weights always sum to one. With a weight of 0, every selector can
            end on a code of no expert, which has no entropy: all weights are then 0.
        reduction: `"sum"` or `"mean"` of a per-example gate's penalties over the
            batch. The release sums.
        **kwargs: `normalize`, whether to layer-normalize the routing inputs and the
            kernels of both logits (default `False`, as in the release), and the
            arguments of `Gate`.

    Example:
        >>> gate = DSelectKGate(num_nonzeros=2, entropy_reg=0.01)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> mixed.shape, gate.expert_weights().shape
        ((1, 3), (4,))

    Reference:
        Hazimeh et al., "DSelect-k: Differentiable Selection in the Mixture of
        Experts with Applications to Multi-Task Learning" (NeurIPS 2021), Section 3
        and Appendix B.2.
    """

    def __init__(
        self,
        num_nonzeros: int = 2,
        gamma: Any = 1.0,
        entropy_reg: Any = None,
        z_initializer: Initializer = None,
        w_initializer: Initializer = None,
        unreachable: Any = 1.0,
        reduction: str = "sum",
        **kwargs: Any,
    ):
        super().__init__(
            num_nonzeros, entropy_reg, z_initializer, w_initializer, reduction, **kwargs
        )
        self.gamma = check_schedule(gamma, "gamma", positive=True)
        self._assign = unreachable == "assign"
        if unreachable is None or (isinstance(unreachable, str) and not self._assign):
            raise ValueError(
                '`unreachable` must be "assign", or the weight of a penalty, 0.0 for '
                f"none. Received: unreachable={unreachable!r}."
            )
        penalty = None if self._assign else unreachable
        self._reachability: Any = ReachabilityRegularizer.get(penalty, "unreachable")

    @property
    def unreachable(self) -> Any:
        """`"assign"`, or the weight of the penalty on unreachable codes."""
        return "assign" if self._assign else self._reachability.weight

    def build_logits(self) -> None:
        # The number of bits of an expert's code.
        self.num_bits = (self.num_experts - 1).bit_length()
        self._has_unreachable = self.num_experts != 2**self.num_bits
        self._owners = self._draw_owners()
        if self._assign:
            self._owned = self._codes_by_owner()
        z_initializer = self.z_initializer or self._draw_bits
        w_initializer = self.w_initializer or "random_uniform"
        shape = (*self.gate_shape, self.num_nonzeros, 1)
        norm = {"normalize": self.normalize}
        self._z = Logits(self, "z", (*shape, self.num_bits), z_initializer, **norm)
        # `_z` and `_w` in the release.
        self.shares = self._w = Logits(self, "w", shape, w_initializer, **norm)

    def _draw_bits(self, shape, dtype=None):
        """Draw logits of bits that are uniform in ±gamma/100."""
        # Not as bounds: the first value of a schedule is a symbol in a compiled step.
        draw = keras.initializers.RandomUniform(-0.01, 0.01)
        return ops.cast(value_at(self.gamma, 0), dtype) * draw(shape, dtype)

    def soft_codes(self, z, step, factor) -> Tensor:
        return smooth_step(ops.squeeze(z, -2), value_at(self.gamma, step) * factor)

    def nearest_codes(self, z) -> Tensor:
        z = ops.squeeze(z, -2)
        if not self._has_unreachable or self._assign:
            return ops.cast(z > 0, "float32")
        codes = self.codes_of(ops.arange(self.num_experts, dtype="int"))
        scores = ops.matmul(z, ops.transpose(2.0 * codes - 1.0))
        return ops.matmul(ops.cast(first_largest(scores), "float32"), codes)

    def codes_of(self, experts) -> Tensor:
        # Not from a NumPy array, which torch would copy to a GPU in each step.
        places = ops.arange(self.num_bits - 1, -1, -1, dtype=experts.dtype)
        bits = ops.right_shift(ops.expand_dims(experts, -1), places) % 2
        return ops.cast(bits, "float32")

    def compute_selectors(self, codes) -> Tensor:
        if not (self._assign and self._has_unreachable):
            return selector_product(codes, self.num_experts)
        # Sums, and no matrix product, of which GPUs round the factors.
        products = selector_product(codes, len(self._owners))
        products = ops.pad(products, [(0, 0)] * (len(products.shape) - 1) + [(0, 1)])
        owned = ops.convert_to_tensor(self._owned, "int")
        return ops.sum(ops.take(products, owned, axis=-1), axis=-2)

    def compute_penalties(self, routing: Routing, step: Tensor) -> dict:
        penalties = super().compute_penalties(routing, step)
        if self._has_unreachable and not self._assign:
            # The reciprocal of infinity is zero.
            args = self._reachability, routing.selectors, step
            penalties["reachability"] = routing.penalty(*args, padding=float("inf"))
        return penalties

    def chosen_experts(self) -> ChosenExperts:
        require_static(self)
        logits = ops.convert_to_numpy(self.shares.static)[..., 0]
        bits = ops.convert_to_numpy(self._codes(self._z(None), self.step))
        distance = np.minimum(bits, 1.0 - bits).max(axis=-1, initial=0.0)
        places = 2 ** np.arange(bits.shape[-1])[::-1]
        nearest = np.array(self._owners)[(bits > 0.5).astype(int) @ places]
        choices = ops.convert_to_numpy(self.choices)
        return ChosenExperts(np.where(choices < 0, nearest, choices), distance, logits)

    def assign_logits(self, weights: np.ndarray, slack: float) -> None:
        """Set each selector to one expert, at the gamma of the present step.

        With `slack`, the bits' logits are nearer to 0 than the ends of the smooth step.
        """
        chosen, log_shares = one_expert_each(weights, self.num_nonzeros)
        codes = binary_codes(self.num_experts)[chosen]
        width = float(value_at(self.gamma, self.step)) * (1.0 - slack)
        self._z.assign((codes - 0.5)[..., None, :] * width)
        self.shares.assign(log_shares[..., None])
        self.replace_choices(chosen)

    def _draw_owners(self):
        """Give the expert of each code, -1 for a code that belongs to no expert."""
        n, spare = self.num_experts, 2**self.num_bits - self.num_experts
        others = np.full(spare, -1)
        if self._assign:
            seeds = [n, *([] if self.seed is None else [self.seed])]
            others = np.random.default_rng(seeds).integers(n, size=spare)
        return (*range(n), *others.tolist())

    def _codes_by_owner(self):
        """List the codes of each expert in a column, padded by one beyond the last."""
        columns: list = [[] for _ in range(self.num_experts)]
        for code, owner in enumerate(self._owners):
            columns[owner].append(code)
        return (*itertools.zip_longest(*columns, fillvalue=len(self._owners)),)
