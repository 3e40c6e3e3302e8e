"""Remove the experts that no task uses."""

import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import (
    copy_state,
    optimizer_parts,
    optimizer_state,
    track_parameters,
)
from dselectk_keras.distribution import is_model_parallel
from dselectk_keras.gates import Gate
from dselectk_keras.gates.selected import SelectedGate
from dselectk_keras.layers import MoE
from dselectk_keras.models.task import config_with_tasks


class Condensed(NamedTuple):
    """The result of condensing a layer.

    Args:
        layer: Name of the layer.
        kept: Indices of the experts that some gate uses.
        dropped: Indices of the experts that no gate uses.
        moved: The largest change of an expert's weight: 0.0 unless selectors were
            rounded.
    """

    layer: str
    kept: list[int]
    dropped: list[int]
    moved: float


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
    are equal up to rounding. The weights and the optimizer's state are copied, so that
    training can continue.

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
    copy = _copy(model)
    reports = _condense(copy, plans)
    moved = max(report.moved for report in reports)
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


def condense_in_place(model: Any, tolerance: float = 0.0) -> list[Condensed]:
    """Condense a model without a copy, and change its optimizer accordingly.

    The result is a list of `Condensed`, one for each layer.
    """
    return _condense(model, _plans(model, tolerance, force=False))


def check_not_split() -> None:
    """Raise an error if experts may be split over devices."""
    if is_model_parallel():
        raise ValueError(
            "Experts that are split over devices cannot be condensed, since fewer of "
            "them may not fill the devices. Received: "
            "`keras.distribution.ModelParallel`. Save the model, load it without a "
            "distribution, and call `condense` there."
        )


def check_not_shared(model: Any) -> None:
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


def undecided(model: Any, tolerance: float = 0.0) -> list[tuple[str, tuple, float]]:
    """List the selectors that are not binary: layer, indices and distance."""
    found = []
    for layer in condensable(model):
        distance = layer.gate.selection().distance
        places = [tuple(p) for p in np.argwhere(distance > tolerance).tolist()]
        found += [(layer.name, place, float(distance[place])) for place in places]
    return found


def condensable(model: Any) -> list[MoE]:
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
    check_not_split()
    check_not_shared(model)
    plans = {layer.name: layer.gate.selection() for layer in condensable(model)}
    open_selectors = undecided(model, tolerance)
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


def _condense(model, plans):
    """Condense the layers of a model, and rebuild its optimizer."""
    sources, reports = {}, []
    for name, selection in plans.items():
        layer = model.get_layer(name)
        gate, bank = layer.gate, layer.experts
        # `selection.variable` may belong to the model of which this model is a copy.
        variable = gate.selection().variable
        before = ops.convert_to_numpy(gate.expert_weights())
        kept = sorted({*selection.choices.ravel().tolist()} - {-1}) or [0]
        # A gate that was condensed before reports the indices from before.
        numbers = getattr(gate, "kept", None) or list(range(bank.num_experts))
        settled = _settled(gate, selection, kept, numbers)
        sources[id(settled.weights[0])] = (variable, selection.pick)
        experts = bank
        if len(kept) < bank.num_experts:
            experts, origins = bank.sliced(kept)
            weights = map(id, experts.weights)
            sources.update(zip(weights, origins, strict=True))
        layer.replace(experts, settled)
        after = np.zeros_like(before)
        after[..., kept] = ops.convert_to_numpy(settled.expert_weights())
        moved = float(np.abs(after - before).max()) if before.size else 0.0
        dropped = [number for number in numbers if number not in settled.kept]
        reports.append(Condensed(name, [*settled.kept], dropped, moved))
    if getattr(model, "optimizer", None) is not None and model.optimizer.built:
        model.optimizer = _moved(model.optimizer, model.trainable_variables, sources)
    model.train_function = model.test_function = model.predict_function = None
    track_parameters(model)
    return reports


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


def _moved(optimizer, variables, sources):
    """Create an optimizer for these variables, with the state of their sources."""
    moved = type(optimizer).from_config(optimizer.get_config())
    moved.build(variables)
    parts = map(optimizer_parts, (optimizer, moved))
    kept = set()
    for old, new in zip(*parts, strict=True):
        trained, slots_by_name, others = optimizer_state(old)
        for name, other in others.items():
            getattr(new, name).assign(ops.convert_to_numpy(other))
        place = {id(variable): i for i, variable in enumerate(trained)}
        for name, slots in slots_by_name.items():
            for slot, variable in zip(getattr(new, name), variables, strict=True):
                source, pick = sources.get(id(variable), (variable, np.asarray))
                before = slots[place[id(source)]]
                if slot is not None and before is not None:
                    slot.assign(pick(ops.convert_to_numpy(before)))
            kept |= {id(slot) for slot in slots}
        kept |= {id(other) for other in others.values()}
    lost = [each.path for each in optimizer.variables if id(each) not in kept]
    if lost:
        warnings.warn(
            f"{type(optimizer).__name__} keeps numbers of another shape than the "
            "parameters. After condensing, these begin anew: "
            f"{', '.join(lost[:5])}{', ...' if len(lost) > 5 else ''}.",
            stacklevel=4,
        )
    return moved


def _copy(model):
    """Copy a model with its variables, and its optimizer if it has one."""
    copy = type(model).from_config(config_with_tasks(model))
    if not copy.built:
        raise ValueError(
            "A functional model is needed, which can be copied from its config. "
            f"Received: {type(model).__name__}, a subclass of `keras.Model`. Make it "
            "functional: call the layers on `keras.Input`, as in "
            "`keras.Model(inputs, outputs)`."
        )
    copy_state(model, copy)
    if getattr(model, "compiled", False):
        config = keras.saving.deserialize_keras_object(model.get_compile_config())
        # The config of some losses lacks settings, such as the `delta` of `Huber`.
        copy.compile(**{**config, "loss": model.loss})
        if model.optimizer is not None and model.optimizer.built:
            copy.optimizer = _copy_optimizer(model, copy)
    return copy


def _copy_optimizer(model, copy):
    """Create the optimizer of a copy of a model, with the same state."""
    optimizer = model.optimizer
    twin = type(optimizer).from_config(optimizer.get_config())
    own = dict(zip(map(id, model.variables), copy.variables, strict=True))
    # Not the trainable variables: layers may have been frozen since it was built.
    trained, *_ = optimizer_state(optimizer_parts(optimizer)[-1])
    twin.build([own[id(variable)] for variable in trained])
    for new, old in zip(twin.variables, optimizer.variables, strict=True):
        # Through NumPy: on JAX they would share a buffer, which a step donates.
        new.assign(ops.convert_to_numpy(old))
    return twin
