"""Remove the experts that no task uses."""

from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.distribution import is_model_parallel
from dselectk_keras.gates.chosen import ChosenGate, warn_if_random
from dselectk_keras.layers import MoE
from dselectk_keras.models.rebuild import (
    compile_alike,
    layers_to_replace,
    rebuild,
)
from dselectk_keras.utils import check_number


def condense(model: Any, tolerance: float = 0.0) -> Any:
    r"""Copy a model without the experts that no task uses.

    $$
    \sum_{i=1}^{n} g_{t,i} \, f_i(x) = \sum_{i \in U} g_{t,i} \, f_i(x), \qquad
    U = \{ i : g_{t,i} > 0 \text{ for some } t \}
    $$

    The gates must be static, and all selectors binary. The outputs are equal up to
    rounding. In the new model, the choice of experts is fixed, and their weights are
    still trained. If `model` is compiled, so is the new model, with an optimizer that
    begins anew: its momentum and its step are zero.

    Args:
        model: A functional model, such as `MultitaskModel`, with `MMoE` layers.
        tolerance: The largest distance of a bit, or of a selector's largest weight,
            from 0 or 1. Selectors within it are rounded, which changes the outputs: 0.0
            rounds none, and 1.0 all.

    Returns:
        A model of the same class; compiled if `model` is.

    Example:
        >>> inputs = keras.Input((5,))
        >>> layer = MMoE(DenseExperts(8, [4]), TopKGate(2), ["a"], stacked=True)
        >>> model = keras.Model(inputs, layer(inputs))
        >>> condense(model).layers[-1].experts.num_experts
        2

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 2 and Appendix C.3.
    """
    copy = condensed(model, tolerance)
    if getattr(model, "compiled", False):
        compile_alike(model, copy)
    return copy


def condensed(model: Any, tolerance: float) -> Any:
    """Make the copy of `condense`, not compiled."""
    check_number("tolerance", tolerance, minimum=0, maximum=1)
    if is_model_parallel():
        raise ValueError(
            "Fewer experts may not fill the devices over which they are split. "
            "Received: `keras.distribution.ModelParallel`. Save the model, load it "
            "without a distribution, and call `condense` there."
        )
    layers = layers_to_replace(model, MoE)
    for layer in layers:
        if not layer.experts.shared_input:
            raise ValueError(
                "Only experts that share one input can be removed. Received: the layer "
                f"{layer.name!r}, whose experts have shared_input=False, so that its "
                "input has an entry for each of them."
            )
    warn_if_random(model)
    chosen = {layer.name: layer.gate.chosen_experts() for layer in layers}
    undecided = [
        f"{name} {tuple(place)} by {distance[tuple(place)]:.3g}"
        for name, (_, distance, _) in chosen.items()
        for place in np.argwhere(distance > tolerance).tolist()
    ]
    if undecided:
        raise ValueError(
            f"{len(undecided)} selectors are not binary (layer, indices, distance from "
            f"binary): {'; '.join(undecided[:5])}{'; ...' * (len(undecided) > 5)}. "
            "Train with the callback `DecideGates()`. If it was there, the training "
            "ended before the decision: set `start_from_epoch` of `EarlyStopping`, "
            "or lower `by`. Or raise `tolerance`, to round selectors."
        )

    def change(layer, settings):
        choices, _, logits = chosen[layer.name]
        settings["experts"], settings["gate"] = narrowed(layer, choices, logits)

    return rebuild(model, layers, change)


def narrowed(layer: MoE, choices: np.ndarray, logits: np.ndarray) -> tuple:
    """Build the experts that a static gate has chosen, and a gate with its choices.

    `choices` and `logits` are those of `ChosenExperts`, or of some of the gates.
    """
    gate, bank = layer.gate, layer.experts
    used = sorted({*choices.ravel().tolist()} - {-1}) or [0]
    place = {-1: -1, **{expert: i for i, expert in enumerate(used)}}
    # A gate that was condensed before reports the indices from before.
    numbers = getattr(gate, "kept", None) or list(range(bank.num_experts))
    chosen = ChosenGate(
        choices.shape[-1],
        np.vectorize(place.get)(choices),
        kept=[numbers[i] for i in used],
        num_before=getattr(gate, "num_before", None) or len(numbers),
        num_gates=None if choices.ndim == 1 else len(choices),
        weights_regularizer=gate.weights_regularizer,
        expert_dropout=gate.expert_dropout,
        seed=gate.seed,
        train_shares=getattr(gate, "train_shares", True),
        name=gate.name,
        dtype=gate.dtype_policy,
    )
    chosen.build((None, len(used)))
    chosen.set_weights([logits, ops.convert_to_numpy(gate.step)])
    chosen.trainable = gate.trainable
    if chosen.generator is not None:
        drawn = ops.convert_to_numpy(gate.generator.state)
        chosen.generator.state.assign(drawn)
    experts = bank.sliced(used)
    experts.name = bank.name
    return experts, chosen
