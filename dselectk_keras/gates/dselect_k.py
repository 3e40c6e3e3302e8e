"""The DSelect-k gate."""

from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.selection import Selection, require_static
from dselectk_keras.ops import binary_codes, selector_product, smooth_step, softmax
from dselectk_keras.regularizers import EntropyRegularizer, ReachabilityRegularizer
from dselectk_keras.schedules import ScheduledValue
from dselectk_keras.utils import check_count


@keras.saving.register_keras_serializable(package="dselectk_keras")
class DSelectKGate(Gate):
    r"""Sparse weights from k selectors over binary codes: continuously differentiable.

    $$
    g_i = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \; r_i(z_s), \qquad
    r_i(z) = \prod_{j=1}^{m} S(z_j)^{c_{ij}} (1 - S(z_j))^{1 - c_{ij}}
    $$

    $c_i$ is the binary code of expert $i$ in $m = \lceil \log_2 n \rceil$ bits and
    $S$ the smooth step. Each selector ends on one expert, so that at most k weights
    are not zero; an entropy term speeds that up. With defaults the gate computes
    what the original release does, and has its weights, in its order:
    `[z_logits (k, 1, m), w_logits (k, 1)]`, or per-example
    `[z kernel (p, k m), z bias, w kernel (p, k), w bias]`.

    Args:
        num_nonzeros: The number of selectors, $k$: an upper bound on the number of
            experts that a gate ends with.
        gamma: Width of the smooth step: a number, or a schedule of training calls
            (the paper's Section 3.2 anneals it towards 0). With a wider one a gate
            decides later.
        entropy_reg: An `EntropyRegularizer`, or the number or schedule for one.
        z_initializer: For the selectors' logits. `None` is uniform in ±gamma/100.
        w_initializer: For the selectors' weights. `None` is uniform in ±0.05.
        unreachable: What becomes of codes that belong to no expert, when $n$ is not
            a power of two. A number or schedule is the weight of a penalty on them
            (a `ReachabilityRegularizer`; the release has 1.0). `"assign"` gives each
            to an expert, drawn at random once for each $n$, so that the weights
            always sum to one.
        reduction: `"sum"` or `"mean"`: over the batch, in the penalties of a
            per-example gate. The release sums.
        **kwargs: `num_gates`, `weights_regularizer`, `expert_dropout` and `seed` (see
            `Gate`), and the arguments of `keras.Layer`.

    Call arguments:
        inputs: The experts, or a tuple of experts and routing inputs (see `Gate`).
        training: Whether to add the penalties to the loss.

    Returns:
        The mixture of the experts.

    Example:
        >>> gate = DSelectKGate(num_nonzeros=2, entropy_reg=0.01)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> mixed.shape, gate.expert_weights().shape
        ((1, 3), (4,))

    Reference:
        Hazimeh et al., "DSelect-k: Differentiable Selection in the Mixture of
        Experts with Applications to Multi-Task Learning" (NeurIPS 2021), Section 3.
    """

    def __init__(
        self,
        num_nonzeros,
        gamma=1.0,
        entropy_reg=None,
        z_initializer=None,
        w_initializer=None,
        unreachable=1.0,
        reduction="sum",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_count("num_nonzeros", num_nonzeros)
        if reduction not in {"sum", "mean"}:
            raise ValueError(
                f'`reduction` must be "sum" or "mean". Received: {reduction!r}.'
            )
        if isinstance(unreachable, str) and unreachable != "assign":
            raise ValueError(
                '`unreachable` must be "assign", or the weight of a penalty. '
                f"Received: {unreachable!r}."
            )
        self.num_nonzeros = num_nonzeros
        self.entropy_reg = EntropyRegularizer.get(entropy_reg)
        self.z_initializer = keras.initializers.get(z_initializer)
        self.w_initializer = keras.initializers.get(w_initializer)
        self.reduction = reduction
        self._gamma = ScheduledValue(gamma, "gamma")
        self._assign = unreachable == "assign"
        self._reachability = (
            None if self._assign else ReachabilityRegularizer.get(unreachable)
        )
        if not callable(self.gamma) and not 0 < self.gamma < float("inf"):
            raise ValueError(
                "`gamma` must be positive: it is the width of the smooth step. "
                f"Received: gamma={gamma}."
            )
        for schedule in (self.entropy_reg, self._reachability, self._gamma):
            self.track_schedule(schedule)

    @property
    def gamma(self):
        """Width of the smooth step: a number or a schedule."""
        return self._gamma.value

    @property
    def unreachable(self):
        """`"assign"`, or the weight of the penalty on unreachable codes."""
        return "assign" if self._assign else self._reachability.scheduled.value

    @property
    def num_bits(self):
        """The bits of an expert's code, $m$."""
        return binary_codes(self.num_experts).shape[1]

    @property
    def max_experts(self):
        """The number of selectors: more experts have weights until they are binary."""
        return self.num_nonzeros

    def build_logits(self):
        """Create the logits of the bits, and of the selectors' weights."""
        width = float(self._gamma())
        z_initializer = self.z_initializer or keras.initializers.RandomUniform(
            -width / 100, width / 100
        )
        w_initializer = self.w_initializer or "random_uniform"
        shape = (*self.gate_shape, self.num_nonzeros, 1)
        self._z = Logits(self, "z", (*shape, self.num_bits), z_initializer)
        self._w = Logits(self, "w", shape, w_initializer)

    def compute_weights(self, routing_inputs, training) -> tuple[Any, dict]:
        """The weighted sum of the selectors."""
        bits, selectors = self._select(routing_inputs)
        shares = softmax(self._w(routing_inputs), axis=-2)
        weights = ops.sum(shares * selectors, axis=-2)
        return weights, {"bits": bits, "selectors": selectors}

    def compute_penalties(self, weights, parts):
        """The entropy and the reachability terms."""
        bits, selectors = parts["bits"], parts["selectors"]
        penalties = {}
        if self.entropy_reg is not None:
            uncertain = (
                selectors
                if self.entropy_reg.target == "selectors"
                else ops.stack([bits, 1.0 - bits], axis=-1)
            )
            penalties["entropy"] = self.entropy_reg.value(uncertain)
        if self._has_unreachable and not self._assign:
            penalties["reachability"] = self._reachability.value(selectors)
        if self.per_example and self.reduction == "mean":
            batch = ops.cast(ops.shape(weights)[0], "float32")
            penalties = {name: value / batch for name, value in penalties.items()}
        return penalties

    def compute_diagnostics(self, parts):
        """Which selectors are binary, and how much of each reaches an expert.

        Args:
            parts: The dict that `compute_weights` returned beside the weights.

        Returns:
            A dict of tensors `([batch,] [num_gates,] k)`. `"binary"` is 1.0 where
            every bit of the selector is 0 or 1, `"reachable"` is the selector's
            mass on experts.
        """
        bits = parts["bits"]
        decided = ops.logical_or(bits == 0.0, bits == 1.0)
        return {
            "binary": ops.cast(ops.all(decided, axis=-1), "float32"),
            "reachable": ops.sum(parts["selectors"], axis=-1),
        }

    def selector_outputs(self, routing_inputs=None):
        """The weights of each selector over the experts.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.

        Returns:
            A float32 tensor `(k, n)`, or `(batch, k, n)`, with an axis for the
            gates before k if there are several.
        """
        return self._select(self._routing(routing_inputs))[1]

    def selection(self):
        """Which expert each selector is on, and the distance of its bits from 0 or 1.

        Returns:
            A `Selection`.
        """
        require_static(self)
        bits, _ = self._select(None)
        bits = ops.convert_to_numpy(bits)
        places = 2 ** np.arange(bits.shape[-1])[::-1]
        codes = (bits > 0.5).astype(int) @ places
        owners = np.concatenate([np.arange(self.num_experts), self._owners()])
        distance = np.minimum(bits, 1.0 - bits).max(axis=-1, initial=0.0)
        return Selection(
            owners[codes], distance, self._w.static, lambda logits: logits[..., 0]
        )

    @classmethod
    def logits_from_weights(cls, weights, num_nonzeros, gamma=1.0, slack=0.0):
        r"""Logits with which a gate gives the weights asked for.

        The construction in the proof of Proposition 1: one selector sits on each
        expert with a weight, its bits at the ends of the smooth step and its
        $\alpha$ the logarithm of the weight. Selectors left over share the largest
        weight with the selector that is there.

        Args:
            weights: Array `(..., n)`, non-negative, summing to one, with at most
                `num_nonzeros` entries that are not zero.
            num_nonzeros: The number of selectors, $k$.
            gamma: Width of the smooth step of the gate.
            slack: How far inside the band the bits sit, as a fraction of its half
                width. At 0 the weights are met exactly, but no gradient moves the
                selectors; with a little slack they can still be trained.

        Returns:
            Two float32 arrays, `z_logits` `(..., k, 1, m)` and `w_logits`
            `(..., k, 1)`.

        Example:
            >>> z, w = DSelectKGate.logits_from_weights([0, 0.25, 0, 0.75], 2)
            >>> gate = DSelectKGate(num_nonzeros=2)
            >>> gate.build((None, 4))
            >>> gate.set_weights([z, w])
            >>> keras.ops.convert_to_numpy(gate.expert_weights()).round(4).tolist()
            [0.0, 0.25, 0.0, 0.75]
        """
        weights = np.asarray(weights, "float64")
        check_count("num_nonzeros", num_nonzeros)
        used = (weights > 0).sum(axis=-1)
        if (
            weights.ndim == 0
            or (weights < 0).any()
            or not np.allclose(weights.sum(axis=-1), 1.0, atol=1e-4)
            or (used > num_nonzeros).any()
        ):
            raise ValueError(
                "`weights` must be non-negative, sum to one along the last axis and "
                f"have at most {num_nonzeros} non-zeros. Received: weights of shape "
                f"{weights.shape} with {used.max()} non-zeros, in the range "
                f"[{weights.min():g}, {weights.max():g}], with sums from "
                f"{weights.sum(axis=-1).min():g} to {weights.sum(axis=-1).max():g}."
            )
        order = np.argsort(-weights, axis=-1, kind="stable")
        chosen = order[..., :num_nonzeros]
        missing = num_nonzeros - chosen.shape[-1]
        if missing > 0:
            spare = np.repeat(order[..., :1], missing, axis=-1)
            chosen = np.concatenate([chosen, spare], axis=-1)
        rank = np.arange(num_nonzeros)
        chosen = np.where(rank < used[..., None], chosen, order[..., :1])
        # The first selector and the spare ones share the largest weight.
        shared = (rank >= used[..., None]) | (rank == 0)
        shares = np.take_along_axis(weights, chosen, axis=-1)
        shares = np.where(shared, shares / shared.sum(-1, keepdims=True), shares)
        codes = binary_codes(weights.shape[-1])[chosen]
        z = np.where(codes, 0.5, -0.5) * gamma * (1.0 - slack)
        return z[..., None, :].astype("float32"), np.log(shares)[..., None].astype(
            "float32"
        )

    def assign_expert_weights(self, weights, slack=0.0):
        """Warm-start the gate: set its logits so that it gives these weights.

        A per-example gate gives them to every example, until it is trained.

        Args:
            weights: Array `(n,)`, or `(num_gates, n)`, with at most
                `num_nonzeros` non-zeros each.
            slack: See `logits_from_weights`.
        """
        expected = (*self.gate_shape, self.num_experts)
        if np.shape(weights) != expected:
            raise ValueError(
                f"`weights` must have the shape {expected}. "
                f"Received: {np.shape(weights)}."
            )
        z, w = self.logits_from_weights(
            weights, self.num_nonzeros, float(self._gamma()), slack
        )
        self._z.assign(z)
        self._w.assign(w)

    def set_weights(self, weights):
        """Set the weights from arrays, such as the original release's.

        Args:
            weights: Arrays in the order of `weights`. The release's list may end in
                the count of its entropy regularizer's calls.
        """
        if self.entropy_reg is not None and len(weights) == len(self.weights) + 1:
            *weights, num_calls = weights
            self.entropy_reg.num_calls.assign(int(num_calls))
        super().set_weights(weights)

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "num_nonzeros": self.num_nonzeros,
            "gamma": self._gamma.serialize(),
            "entropy_reg": keras.regularizers.serialize(self.entropy_reg),
            "z_initializer": keras.initializers.serialize(self.z_initializer),
            "w_initializer": keras.initializers.serialize(self.w_initializer),
            "unreachable": "assign"
            if self._assign
            else self._reachability.scheduled.serialize(),
            "reduction": self.reduction,
        }

    @property
    def _has_unreachable(self):
        return self.num_experts != 2**self.num_bits

    def _select(self, routing_inputs):
        """The relaxed bits `(..., k, m)` and the selectors `(..., k, n)`."""
        bits = smooth_step(ops.squeeze(self._z(routing_inputs), -2), self._gamma())
        if not (self._assign and self._has_unreachable):
            return bits, selector_product(bits, self.num_experts)
        owners = np.concatenate([np.arange(self.num_experts), self._owners()])
        owned = np.eye(self.num_experts, dtype="float32")[owners]
        return bits, ops.matmul(selector_product(bits, len(owners)), owned)

    def _owners(self):
        """The experts of the codes beyond the experts' own; -1 for none."""
        spare = 2**self.num_bits - self.num_experts
        if not self._assign:
            return np.full(spare, -1)
        generator = np.random.default_rng(self.num_experts)
        return generator.integers(self.num_experts, size=spare)
