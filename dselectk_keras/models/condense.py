"""Remove the experts that no task uses."""

import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import copy_state
from dselectk_keras.distribution import is_model_parallel
from dselectk_keras.gates import Gate
from dselectk_keras.gates.selected import SelectedGate
from dselectk_keras.layers import MoE
from dselectk_keras.models.task import config_with_tasks


def condense(
    model: Any, tolerance: float = 0.0, force: bool = False, probe: Any = None
) -> Any:
    r"""Copy a model without the experts that no task uses.

    $$
    \sum_{i=1}^{n} g_{t,i} \, f_i(x) = \sum_{i \in U} g_{t,i} \, f_i(x), \qquad
    U = \{ i : g_{t,i} > 0 \text{ for some } t \}
    $$

    The gates must be static, and all selectors binary. In the new model, the choice of
    experts is fixed. The weights of the chosen experts are still trained. The outputs
    are equal up to rounding.

    To train on, call `fit` on the new model. If `model` is compiled, so is the new
    model, with the same settings. Its optimizer begins anew: the momentum is zero, and
    a schedule of the learning rate starts at step 0.

    Args:
        model: A functional model or `MultitaskModel` with `MMoE` or `MoE` layers.
        tolerance: The largest distance of a bit, or of a selector's largest weight,
            from 0 or 1.
        force: Whether to round selectors that are not binary. A warning reports the
            change of the experts' weights, and of the outputs for `probe`.
        probe: A batch of the model's inputs.

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
    plans = _plans(model, tolerance, force)
    copy, moved = _condensed(model, plans)
    if moved > 0.0 and force:
        text = f"Rounding the selectors moved experts' weights by up to {moved:.3g}"
        if probe is not None:
            before, after = (
                map(ops.convert_to_numpy, keras.tree.flatten(each(probe)))
                for each in (model, copy)
            )
            pairs = zip(before, after, strict=True)
            change = max(np.abs(a - b).max() for a, b in pairs)
            text += f", and outputs for the probe by up to {change:.3g}"
        warnings.warn(text + ".", stacklevel=2)
    return copy


def _check_not_split() -> None:
    """Raise an error if experts may be split over devices."""
    if is_model_parallel():
        raise ValueError(
            "Experts that are split over devices cannot be condensed, since fewer of "
            "them may not fill the devices. Received: "
            "`keras.distribution.ModelParallel`. Save the model, load it without a "
            "distribution, and call `condense` there."
        )


def _check_not_shared(model: Any) -> None:
    """Raise an error if layers that would be condensed share a bank or a gate."""
    for part in ("experts", "gate"):
        owners = {}
        for layer in model.layers:
            if isinstance(layer, MoE):
                owners.setdefault(id(getattr(layer, part)), []).append(layer.name)
        shared = [names for names in owners.values() if len(names) > 1]
        if shared:
            raise ValueError(
                "Layers that share experts or a gate cannot be condensed: each would "
                f"get its own. Received: {part!r} shared by {', '.join(shared[0])}. "
                f"Build the layers with separate {part!r}, or do not condense."
            )


def _undecided(model: Any, tolerance: float = 0.0) -> list[tuple[str, tuple, float]]:
    """List the selectors that are not binary: layer, indices and distance."""
    found = []
    for layer in _condensable(model):
        distance = layer.gate.selection().distance
        places = [tuple(p) for p in np.argwhere(distance > tolerance).tolist()]
        found += [(layer.name, place, float(distance[place])) for place in places]
    return found


def _condensable(model: Any) -> list[MoE]:
    """List the layers of a built model that can be condensed."""
    if not model.built:
        raise ValueError(
            "Build the model before you condense it. Received: a model that is not "
            "built. Train it, or call it on a batch."
        )
    layers = [layer for layer in model.layers if isinstance(layer, MoE)]
    if not layers:
        names = ", ".join(layer.name for layer in model.layers)
        raise ValueError(
            "The model has no experts with a gate to condense: it needs a layer `MMoE` "
            f"or `MoE`. Received layers: {names}. Layers inside of other layers are "
            "not condensed."
        )
    return layers


def _plans(model, tolerance, force):
    """Get the selection of each layer, after checking that all are binary."""
    _check_not_split()
    _check_not_shared(model)
    plans = {layer.name: layer.gate.selection() for layer in _condensable(model)}
    open_selectors = _undecided(model, tolerance)
    if open_selectors and not force:
        shown = "; ".join(
            f"{name} {place} by {distance:.3g}"
            for name, place, distance in open_selectors[:5]
        )
        more = len(open_selectors) - 5
        raise ValueError(
            f"{len(open_selectors)} selectors are not binary (layer, indices, distance "
            f"from binary): {shown}{f'; and {more} more' if more > 0 else ''}. Train "
            "longer, with a larger entropy term if needed, raise `tolerance`, or pass "
            "force=True to round them."
        )
    return plans


def _condensed(model, plans):
    """Copy a model with fewer experts; say how far the largest weight moved."""
    config = config_with_tasks(model)
    if "layers" not in config:
        raise ValueError(
            "A functional model is needed, which can be copied from its config. "
            f"Received: {type(model).__name__}, a subclass of `keras.Model`. Make it "
            "functional: call the layers on `keras.Input`, as in "
            "`keras.Model(inputs, outputs)`."
        )
    moved = [0.0]
    for each in config["layers"]:
        settings = each["config"]
        if settings["name"] in plans:
            layer = model.get_layer(settings["name"])
            settings["experts"], settings["gate"], change = _parts(
                layer, plans[layer.name]
            )
            moved.append(change)
    copy = type(model).from_config(config)
    for layer in model.layers:
        if layer.name not in plans:
            copy_state(layer, copy.get_layer(layer.name))
    if hasattr(model, "task_losses"):
        copy_state(model.task_losses, copy.task_losses)
    if getattr(model, "compiled", False):
        config = keras.saving.deserialize_keras_object(model.get_compile_config())
        # The config of some losses lacks settings, such as the `delta` of `Huber`.
        copy.compile(**{**config, "loss": model.loss})
    return copy, max(moved)


def _parts(layer, selection):
    """Build the bank and the gate of a condensed layer; how far did a weight move?"""
    gate, bank = layer.gate, layer.experts
    kept = sorted({*selection.choices.ravel().tolist()} - {-1}) or [0]
    # A gate that was condensed before reports the indices from before.
    numbers = getattr(gate, "kept", None) or list(range(bank.num_experts))
    settled = _settled(gate, selection, kept, numbers)
    before = ops.convert_to_numpy(gate.expert_weights())
    after = np.zeros_like(before)
    after[..., kept] = ops.convert_to_numpy(settled.expert_weights())
    moved = float(np.abs(after - before).max()) if before.size else 0.0
    if len(kept) < bank.num_experts:
        experts = bank.sliced(kept)
    else:  # Some banks cannot be sliced.
        experts = bank.resized(len(kept)).build_like(bank)
        experts.trainable = bank.trainable
        copy_state(bank, experts)
    experts.name = bank.name
    return experts, settled, moved


def _settled(gate, selection, kept, numbers):
    """Build a gate with the choices of another one, for the experts that are kept."""
    place = {-1: -1, **{expert: i for i, expert in enumerate(kept)}}
    settled = SelectedGate(
        np.vectorize(place.get)(selection.choices),
        kept=[numbers[i] for i in kept],
        num_before=getattr(gate, "num_before", None) or len(numbers),
        num_gates=gate.num_gates,
        **kept_options(gate),
    )
    settled.build((None, len(kept)))
    settled.set_weights([selection.logits, ops.convert_to_numpy(gate.step)])
    settled.trainable = gate.trainable
    if settled.generator is not None:
        drawn = ops.convert_to_numpy(gate.generator.state)
        settled.generator.state.assign(drawn)
    return settled


def kept_options(gate: Gate) -> dict[str, Any]:
    """The arguments that a gate for fewer experts or tasks has in common with it."""
    return {
        "weights_regularizer": gate.weights_regularizer,
        "expert_dropout": gate.expert_dropout,
        "seed": gate.seed,
        "name": gate.name,
        "dtype": gate.dtype_policy,
    }
