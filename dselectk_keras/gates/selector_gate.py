"""The base class of gates with selectors."""

import abc
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import all_layers
from dselectk_keras.gates.chosen_experts import one_expert_each
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import clipped, filled, keep_largest, softmax
from dselectk_keras.regularizers import EntropyRegularizer
from dselectk_keras.utils import (
    MAX_EXPERTS,
    Initializer,
    Tensor,
    add_counter,
    check_choice,
    check_count,
    check_flags,
    get_from,
)

# The width that the selectors reach before they decide, as a part of their first width.
NARROWEST = 0.01


class SelectorGate(Gate, abc.ABC):
    r"""Weights from k selectors, each of which converges to one expert.

    $$
    g = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \, r(z_s)
    $$

    A subclass creates the logits `_z` of the selectors and the logits of their
    `shares`, `(..., k, 1)`. Each expert has a code, such as its bits. A soft selector
    has something between the codes; one that has decided has that of its expert.

    A static gate has `choices` as its last weight, the expert of each selector, or -1
    while the selector is soft. That of a per-example gate is `deciding`, the steps at
    which the selectors begin to narrow and are exactly one expert each. With zeros, as
    at first, they never narrow.

    The arguments are those of `DSelectKGate`.
    """

    _z: Any

    def __init__(
        self,
        num_nonzeros: int,
        entropy_reg: Any,
        z_initializer: Initializer,
        w_initializer: Initializer,
        reduction: str,
        normalize: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice("reduction", reduction, ("sum", "mean"))
        check_flags(normalize=normalize)
        self.num_nonzeros = check_count(
            "num_nonzeros", num_nonzeros, maximum=MAX_EXPERTS
        )
        self.entropy_reg = EntropyRegularizer.get(entropy_reg, "entropy_reg")
        self.z_initializer = get_from(
            keras.initializers, "z_initializer", z_initializer
        )
        self.w_initializer = get_from(
            keras.initializers, "w_initializer", w_initializer
        )
        self.reduction = reduction
        self.normalize = normalize
        self.deciding: Any = None

    @abc.abstractmethod
    def compute_selectors(self, codes: Tensor) -> Tensor:
        """Compute the weights `(..., k, n)` of the selectors with these codes."""

    @abc.abstractmethod
    def soft_codes(self, z: Tensor, step: Tensor, factor: Any) -> Tensor:
        """Compute what each selector has in place of the code of an expert.

        The factor is that of the width of the smooth step, or of the temperature.
        """

    @abc.abstractmethod
    def nearest_codes(self, z: Tensor) -> Tensor:
        """Compute the code of the expert that is nearest to each selector."""

    @abc.abstractmethod
    def codes_of(self, experts: Tensor) -> Tensor:
        """Compute the codes of experts, integers."""

    def build(self, experts_shape: Any = None, routing_inputs_shape: Any = None):
        super().build(experts_shape, routing_inputs_shape)
        if self.num_nonzeros > self.num_experts > 1:
            warnings.warn(
                f"{type(self).__name__} has {self.num_nonzeros} selectors for "
                f"{self.num_experts} experts: selectors share experts, and none need "
                f"be left out. Use num_nonzeros={self.num_experts - 1} or fewer.",
                stacklevel=2,
            )
        if self.per_example:
            self.deciding = add_counter(self, "deciding", (2,))
        else:
            shape = (*self.gate_shape, self.num_nonzeros)
            still_soft = keras.initializers.Constant(-1)
            self.choices = add_counter(self, "choices", shape, still_soft)

    def max_experts(self, once_decided: bool = False) -> int | None:
        return self.num_nonzeros if once_decided else None

    def width(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the width of per-example selectors, and whether they have decided."""
        begin, end = self.deciding[0], self.deciding[1]
        since = filled(ops.cast(step - end, "float32"), end <= 0, -np.inf)
        length = clipped(ops.cast(end - begin, "float32"), 1.0)
        factor = NARROWEST ** clipped(1.0 + since / length, 0.0, 1.0)
        return factor, since >= 0.0

    def decide_between(self, begin: int, end: int) -> None:
        """Make per-example selectors narrow between two steps, and decide; 0: never."""
        if self.deciding is None:
            raise ValueError(
                "Only a per-example gate that is built decides between two steps. "
                f"Received: {self!r}. A static gate has `decide()`."
            )
        check_count("begin", begin, minimum=0)
        self.deciding.assign([begin, check_count("end", end, minimum=begin)])

    def set_weights(self, weights: Sequence[np.ndarray]) -> None:
        """Set the weights; without the last one, selectors are soft (see `Gate`)."""
        super().set_weights(weights)
        if len(weights) < len(self.weights):
            for variable, soft in ((self.choices, -1), (self.deciding, 0)):
                if variable is not None:
                    variable.assign(np.full(variable.shape, soft))

    def largest_mass(self) -> np.ndarray:
        """Compute what part of its weight a static gate has on its k largest."""
        weights = ops.convert_to_numpy(self.expert_weights())
        return np.sort(weights, axis=-1)[..., -self.num_nonzeros :].sum(axis=-1)

    def decide(self, optimizer: Any = None) -> np.ndarray:
        """Keep the k largest weights of a static gate, one for each selector.

        If all weights of a gate are 0, its selectors choose the experts that are
        nearest. A gate with NaN stays as it is. Returns the part of the weight that is
        kept. The optimizer is that of `choose`.
        """
        weights = ops.convert_to_numpy(self.expert_weights())
        kept = self.largest_mass()
        if not np.isfinite(weights).all():
            return kept
        shares = softmax(self.shares(None), axis=-2)
        nearest = self.compute_selectors(self.nearest_codes(self._z(None)))
        nearest = ops.sum(shares * nearest, axis=-2)
        some = weights.sum(axis=-1, keepdims=True) > 0
        weights = np.where(some, weights, ops.convert_to_numpy(nearest))
        weights = ops.convert_to_numpy(keep_largest(weights, self.num_nonzeros))
        choices, log_shares = one_expert_each(weights, self.num_nonzeros)
        self.choose(choices, log_shares, optimizer)
        return kept

    def replace_choices(self, choices: np.ndarray) -> None:
        """Change the experts of the selectors that have decided."""
        if self.choices is not None:
            decided = ops.convert_to_numpy(self.choices) >= 0
            self.choices.assign(np.where(decided, choices, -1))

    @property
    def has_decided(self) -> bool:
        """True if each selector is exactly one expert, in this and all later steps."""
        if not self.built or self.per_example:
            # In NumPy, since callbacks ask after each epoch.
            end = int(ops.convert_to_numpy(self.deciding)[1]) if self.built else 0
            return end > 0 and int(ops.convert_to_numpy(self.step)) >= end
        return bool((ops.convert_to_numpy(self.choices) >= 0).all())

    def compute_weights(self, inputs, training, step) -> Routing:
        z, w = (each(inputs.routing_inputs) for each in (self._z, self.shares))
        codes = self._codes(z, step)
        selectors = self.compute_selectors(codes)
        # Not a softmax of axis -2, for which TensorFlow transposes.
        shares = softmax(ops.squeeze(w, -1))
        weights = ops.sum(ops.expand_dims(shares, -1) * selectors, axis=-2)
        found = {"selectors": selectors, "codes": codes, "reduction": self.reduction}
        return Routing(weights, **found)

    def _codes(self, z, step):
        """Compute the codes of the selectors, of which some may have decided."""
        if self.per_example:
            factor, decided = self.width(step)
            chosen = self.nearest_codes(z)
        else:
            choices = ops.convert_to_tensor(self.choices)
            factor, decided = 1.0, ops.expand_dims(choices >= 0, -1)
            chosen = self.codes_of(choices)
        return ops.where(decided, chosen, self.soft_codes(z, step, factor))

    def compute_penalties(self, routing: Routing, step: Tensor) -> dict:
        if self.entropy_reg is None:
            return {}
        uncertain = (
            routing.selectors
            if self.entropy_reg.target == "selectors"
            else ops.stack([routing.codes, 1.0 - routing.codes], axis=-1)
        )
        return {"entropy": routing.penalty(self.entropy_reg, uncertain, step)}

    def selector_outputs(self, routing_inputs: Tensor = None) -> Tensor:
        """Compute the weights of each selector, `([batch,] [num_gates,] k, n)`."""
        return self._routing(routing_inputs, training=False).selectors


def selector_gates(model: Any) -> list[SelectorGate]:
    """List the gates with selectors of a model."""
    return all_layers(model, SelectorGate)


def print_undecided(model: Any) -> None:
    """Print a line if gates of a model have selectors that are not binary."""
    undecided = []
    for gate in [gate for gate in selector_gates(model) if not gate.has_decided]:
        if gate.per_example:
            undecided.append(f"{gate.name!r}, per-example")
        elif count := int(((distance := gate.chosen_experts().distance) > 0).sum()):
            undecided.append(f"{gate.name!r}, {count} of {distance.size} selectors")
    if undecided:
        print(  # noqa: T201
            f"Some gates have not decided ({'; '.join(undecided)}): they may use more "
            "than `num_nonzeros` experts. Add the callback `DecideGates()`, or, if it "
            "was there, train on until they decide."
        )
