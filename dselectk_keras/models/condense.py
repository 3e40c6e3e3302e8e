"""Remove the experts that no task uses."""

import contextlib
import itertools
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import calls_in, copy_state, replace_parts
from dselectk_keras.distribution import is_model_parallel
from dselectk_keras.experts import ExpertBank
from dselectk_keras.gates import Gate
from dselectk_keras.gates.chosen import ChosenGate
from dselectk_keras.layers import MoE
from dselectk_keras.models.prune_by_data import pruned_by_data
from dselectk_keras.models.rebuild import (
    compile_alike,
    copies_of_layers,
    mixtures_and_gates,
    rebuild,
    sliced_bank,
)
from dselectk_keras.utils import check_number


def condense(
    model: Any, tolerance: float = 0.0, data: Any = None, experts: int | None = None
) -> Any:
    r"""Copy a model without the experts that no task uses.

    $$
    \sum_{i=1}^{n} g_{t,i} \, f_i(x) = \sum_{i \in U} g_{t,i} \, f_i(x), \qquad
    U = \{ i : g_{t,i} > 0 \text{ for some } t \}
    $$

    Static gates must have binary selectors. The outputs are equal up to rounding. In
    the new model, the choice of experts is fixed, and their weights are still trained.
    If `model` is compiled, so is the new model, with an optimizer that begins anew: its
    momentum and its step are zero.

    With `data`, each layer with a per-example gate keeps the experts of the largest
    saliency, a mean over the pairs $X_i$ of an example and a task that choose expert i:

    $$
    S_i = \frac{1}{|X_i|} \sum_{(x, t) \in X_i} g_{t,i}(x) \, \|f_i(x)\|_2, \qquad
    X_i = \{ (x, t) : g_{t,i}(x) > 0 \}
    $$

    The gate then chooses among these. That changes the outputs: a line says which share
    of the choices the others had. Train the copy further, or evaluate it. Static gates
    stay as they are. A `CGC`, also in PLE, keeps this number of the shared experts, and
    at most this number of each task's own. The gates need a logit for each expert: a
    `DSelectKGate` computes the weights of all experts from the same bits, so that
    fewer experts, with other or fewer bits, are another gate.

    Args:
        model: A model with layers such as `MMoE`, which may be inside of layers of your
            own, or a functional model with gates that get a list of tensors, or the
            output of a bank. To save the new model, layers of your own must return
            their `MMoE`, or its parts, in `get_config`.
        tolerance: The largest distance of a bit, or of a selector's largest weight,
            from 0 or 1. Selectors within it are rounded, which changes the outputs: 0.0
            rounds none, and 1.0 all.
        data: For per-example gates: inputs of the model, such as some thousands of
            examples of the training.
        experts: With `data`, the number of experts that each layer keeps of a bank.

    Returns:
        A model of the same class; compiled if `model` is.

    Example:
        >>> inputs = keras.Input((5,))
        >>> layer = MMoE(DenseExperts(8, [4]), TopKGate(2), ["a"], stacked=True)
        >>> model = keras.Model(inputs, layer(inputs))
        >>> condense(model).layers[-1].experts.num_experts
        2

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 2 and Appendix C.3; Lasby et
        al., "REAP the Experts" (2025).
    """
    if (data is None) != (experts is None):
        raise ValueError(
            "`data` and `experts` are needed together: condense(model, data=x, "
            f"experts=4). Received: experts={experts}, and data={data is not None}."
        )
    if data is None:
        copy = condensed(model, tolerance)
    else:
        copy = pruned_by_data(model, data, experts)
    if getattr(model, "compiled", False):
        compile_alike(model, copy)
    return copy


def condensed(model: Any, tolerance: float, partly: bool = False) -> Any:
    """Make the copy of `condense`, not compiled.

    With `partly`, layers of which all experts are needed stay as they are.
    """
    check_number("tolerance", tolerance, minimum=0, maximum=1)
    if is_model_parallel():
        raise ValueError(
            "Fewer experts may not fill the devices over which they are split. "
            "Received: `keras.distribution.ModelParallel`. Save the model, load it "
            "without a distribution, and call `condense` there."
        )
    layers, gates = _mixtures(model, partly)
    chosen = {layer: layer.gate.chosen_experts() for layer in layers}
    chosen |= {gate: gate.chosen_experts() for gate in gates}
    undecided = [
        f"{layer.name} {tuple(place)} by {distance[tuple(place)]:.3g}"
        for layer, (_, distance, _) in chosen.items()
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
    used, new = {}, {}
    for source in dict.fromkeys(gates.values()):
        readers = [gate for gate in gates if gates[gate] is source]
        own = _used(*(chosen[gate].choices for gate in readers))
        used |= dict.fromkeys(readers, own)
        new |= {gate: _narrowed_gate(gate, chosen[gate], own) for gate in readers}
        if source not in readers:
            new[source] = sliced_bank(source, own)

    def change(layer, entry):
        config = keras.saving.serialize_keras_object(new[layer])
        entry.update({**config, "build_config": None})  # The call builds it.
        for call in entry["inbound_nodes"] if gates.get(layer) is layer else ():
            experts, *others = call["args"]
            call["args"] = ([experts[i] for i in used[layer]], *others)

    copy = rebuild(model, [*new], change)
    for layer in new.values():
        copy_state(layer, copy.get_layer(layer.name))
        _copy_draws(layer, copy.get_layer(layer.name))
    copies = copies_of_layers(model, copy)
    for layer in layers:
        used = _used(chosen[layer].choices)
        gate = _narrowed_gate(layer.gate, chosen[layer], used)
        parts = {"experts": sliced_bank(layer.experts, used), "gate": gate}
        replace_parts(copy, copies[id(layer)], parts)
    return copy


def _mixtures(model, partly):
    """List the layers whose experts can be removed, and the `_sources` of gates."""
    found = mixtures_and_gates(model, MoE, Gate, needed=not partly)
    gates = _sources(model, [x for x in found if isinstance(x, Gate)])
    layers = [x for x in found if isinstance(x, MoE)]
    layers = [x for x in layers if _chooses(x.gate)] if partly else layers
    for layer in layers:
        if not layer.experts.shared_input:
            raise ValueError(
                "Only experts that share one input can be removed. Received: the layer "
                f"{layer.name!r}, whose experts have shared_input=False, so that its "
                "input has an entry for each of them."
            )
    if layers or gates or partly:
        return layers, gates
    for gate in found:
        gate.chosen_experts()  # Says why it has none.
    raise ValueError(
        "The experts of a gate must be a list of tensors, or the output of a bank that "
        f"only such gates read. Received: {', '.join(gate.name for gate in found)}. "
        "Pass a list, or use `MoE`."
    )


def _sources(model, gates):
    """Find the layer from which each gate of a model has experts that can be removed.

    It is the bank that the gate reads, or the gate itself if it gets a list. Gates that
    need all of their experts are left out.
    """
    if not gates:  # A model of another class may have no graph.
        return {}
    calls, sources = calls_in(model), {}
    banks = {
        id(output): call.operation
        for call in calls
        if isinstance(call.operation, ExpertBank) and call.operation.shared_input
        for output in call.outputs
    }
    for gate in gates:
        given = [call.arguments.args[0] for call in calls if call.operation is gate]
        found = {gate if isinstance(x, list) else banks.get(id(x)) for x in given}
        if len(found) == 1 and _chooses(gate):
            sources[gate] = found.pop()
    # A bank that anything else reads keeps all experts.
    others = [
        call.input_tensors
        for call in calls
        if not isinstance(sources.get(call.operation), ExpertBank)
    ]
    read = {None, *(banks.get(id(x)) for x in itertools.chain(model.outputs, *others))}
    return {gate: source for gate, source in sources.items() if source not in read}


def _chooses(gate):
    """Whether a gate chooses the same experts for all examples."""
    with contextlib.suppress(ValueError):
        gate.chosen_experts()
        return True
    return False


def _used(*choices):
    """List the experts among choices, of which there is at least one."""
    return sorted({*np.concatenate([*map(np.ravel, choices)]).tolist()} - {-1}) or [0]


def _narrowed_gate(gate, chosen, used):
    """Build a gate that has chosen among the experts in use."""
    choices, _, logits = chosen
    place = {-1: -1, **{expert: i for i, expert in enumerate(used)}}
    # A gate that was condensed before reports the indices from before.
    numbers = getattr(gate, "kept", None) or list(range(gate.num_experts))
    new = ChosenGate(
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
    new.build((None, len(used)))
    new.set_weights([logits, ops.convert_to_numpy(gate.step)])
    new.trainable = gate.trainable
    _copy_draws(gate, new)
    return new


def _copy_draws(gate, new):
    """Copy the state of the random numbers of a gate with `expert_dropout`."""
    if getattr(new, "generator", None) is not None:
        new.generator.state.assign(ops.convert_to_numpy(gate.generator.state))
