"""The gate that has chosen its experts."""

import random
import warnings
from typing import Any

import numpy as np
from keras import ops

from dselectk_keras._keras import all_layers
from dselectk_keras.gates.chosen_experts import ChosenExperts, places_of
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.inputs import check_enough_experts
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import softmax
from dselectk_keras.utils import (
    MAX_EXPERTS,
    add_counter,
    check_choice,
    check_count,
    check_flags,
    check_integers,
)


@GATES.register("chosen")
class ChosenGate(Gate):
    r"""Weights on k experts that something other than gradient descent has chosen.

    $$
    g_i = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \, [c_s = i]
    $$

    The gate is static. The choices $c$ are integers, the weight `choices`, and the
    shares $\alpha$ are trainable. At first, the experts are drawn at random. The
    callback `ChooseExperts` chooses those that fit the labels best, while the model
    trains; without it, `fit` of a `MultitaskModel` warns. `condense` makes this gate
    from others.

    Args:
        num_nonzeros: The number of experts, $k$. `None` is that of `initial_choices`,
            or 2.
        initial_choices: The first choices: a list of $k$ numbers for all gates, or one
            list for each. -1 is no expert; its share is lost. `None` and `"random"`
            draw experts by the `seed`; `"random"` says that they may stay.
        kept: For a condensed bank, the previous numbers of its experts. `None` means
            that the bank has all experts, in order.
        num_before: For a condensed bank, the previous number of experts.
        train_shares: Whether the shares are trained. Otherwise they stay equal.
        **kwargs: The arguments of `Gate`.

    Example:
        >>> gate = ChosenGate(initial_choices=[3, 1])
        >>> mixed = gate([keras.ops.ones((1, 2))] * 4)
        >>> keras.ops.convert_to_numpy(gate.expert_weights()).tolist()
        [0.0, 0.5, 0.0, 0.5]

    Reference:
        Our own. Random experts: Hazimeh et al., "DSelect-k" (NeurIPS 2021), Figure 5.
    """

    def __init__(
        self,
        num_nonzeros: int | None = None,
        initial_choices: Any = None,
        kept: Any = None,
        num_before: int | None = None,
        train_shares: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._is_drawn = np.ndim(np.array(initial_choices, object)) == 0
        if not self._is_drawn:
            initial_choices = check_integers(
                "initial_choices", initial_choices, -1, MAX_EXPERTS
            )
            shape = np.shape(initial_choices)
            if num_nonzeros not in {None, shape[-1]} or (
                shape[:-1] not in {(), self.gate_shape}
            ):
                raise ValueError(
                    "`initial_choices` must have the shape "
                    f"{(*self.gate_shape, num_nonzeros or 'k')}, the experts of each "
                    f"gate. Received: shape {shape}."
                )
            num_nonzeros = shape[-1]
        elif initial_choices is not None:
            check_choice("initial_choices", initial_choices, ("random",))
        k = 2 if num_nonzeros is None else num_nonzeros
        self.num_nonzeros = check_count("num_nonzeros", k, maximum=MAX_EXPERTS)
        self.initial_choices: Any = initial_choices
        if kept is not None:
            kept = check_integers("kept", kept, -1, MAX_EXPERTS)
        if num_before is not None:
            num_before = check_count("num_before", num_before, maximum=MAX_EXPERTS)
        self.kept = kept
        self.num_before = num_before
        check_flags(train_shares=train_shares)
        self.train_shares = train_shares
        # The experts that were drawn, until others are set.
        self.drawn: Any = None

    def build_logits(self) -> None:
        n, initial = self.num_experts, self.initial_choices
        if self._is_drawn:
            check_enough_experts(self)
        elif np.max(initial) >= n:
            raise ValueError(
                f"`initial_choices` must be numbers below {n}, since there are {n} "
                f"experts. Received: {np.max(initial)}."
            )
        if self.per_example:
            raise ValueError(
                "Chosen experts are the same for all examples. Received: routing "
                "inputs. Call the gate as gate(experts); in a layer, leave out "
                "per_example."
            )
        shape = (*self.gate_shape, self.num_nonzeros)
        self.shares = Logits(self, "w", shape, "zeros", trainable=self.train_shares)

    def build(self, experts_shape: Any = None, routing_inputs_shape: Any = None):
        super().build(experts_shape, routing_inputs_shape)
        shape = (*self.gate_shape, self.num_nonzeros)
        self.choices = add_counter(self, "choices", shape, self._first_choices)

    def max_experts(self, once_decided: bool = False) -> int:
        return self.num_nonzeros

    def compute_weights(self, inputs, training, step) -> Routing:
        shares = softmax(self.shares())
        places = places_of(self.choices, self.num_experts)
        weights = ops.sum(ops.expand_dims(shares, -1) * places, axis=-2)
        return Routing(weights, selectors=places, codes=places)

    def chosen_experts(self) -> ChosenExperts:
        choices, logits = map(ops.convert_to_numpy, (self.choices, self.shares()))
        return ChosenExperts(choices, np.zeros(choices.shape), logits)

    def choose(self, choices: Any, shares: Any = None, optimizer: Any = None) -> None:
        super().choose(choices, shares, optimizer)
        self.drawn = None

    def load_own_variables(self, store: Any) -> None:
        """Load the choices too, which then are no longer those that were drawn."""
        self.drawn = None
        super().load_own_variables(store)

    def _first_choices(self, shape, dtype=None):
        """The initial choices, or different experts that are drawn."""
        if not self._is_drawn:
            return np.broadcast_to(self.initial_choices, shape)
        seed = random.randrange(2**31) if self.seed is None else self.seed
        # NumPy guarantees that the raw numbers of a bit generator never change.
        draws = np.random.PCG64(seed).random_raw((*shape[:-1], self.num_experts))
        found = draws.argsort(axis=-1)[..., : self.num_nonzeros]
        self.drawn = found if self.initial_choices is None else None
        return found


def warn_if_random(model: Any) -> None:
    """Warn once of gates that were trained on experts that nobody has chosen."""
    names = []
    for gate in all_layers(model, ChosenGate):
        trained = gate.drawn is not None and int(ops.convert_to_numpy(gate.step)) > 0
        if trained and (ops.convert_to_numpy(gate.choices) == gate.drawn).all():
            gate.drawn = None
            names.append(gate.name)
    if names:
        warnings.warn(
            f"Gates were trained on experts that were drawn at random: "
            f"{', '.join(names)}. Add the callback `ChooseExperts()`, or set "
            "`initial_choices` of `ChosenGate`: the experts, or 'random' if random "
            "experts are meant.",
            stacklevel=3,
        )
