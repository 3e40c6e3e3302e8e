"""Remove the experts of per-example gates that matter least on data."""

import contextlib
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import replace_parts
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.record import recording
from dselectk_keras.layers import CGC, MoE
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.models.rebuild import (
    copies_of_layers,
    mixtures_and_gates,
    narrowed_gate,
    rebuild,
    sliced_bank,
)
from dselectk_keras.utils import check_count, check_type

BATCH_SIZE = 1024


def pruned_by_data(model: Any, data: Any, num_experts: Any) -> Any:
    """Make the copy of `condense` for per-example gates, not compiled."""
    check_count("experts", num_experts)
    layers = mixtures_and_gates(model, (MoE, CGC))
    layers = [layer for layer in layers if layer.per_example]
    mixtures = [layer for layer in layers if isinstance(layer, MoE)]
    _check(layers, num_experts)
    with _without_dispatch(mixtures):
        measured = _measure(model, layers, data)
    copy = rebuild(model)
    copies = copies_of_layers(model, copy)
    for layer in layers:
        totals, counts, sums = measured[layer]
        kept = _kept(layer, totals / np.maximum(counts, 1), num_experts)
        lost = [1 - each[kept].sum() / each.sum() for each in (counts, sums)]
        print(  # noqa: T201
            f"{layer.name}: {len(kept)} of {len(counts)} experts kept. Others had "
            f"{lost[0]:.1%} of the choices, and {lost[1]:.1%} of the weight."
        )
        n, s = layer.experts.num_experts, _num_own(layer)
        parts = {"experts": sliced_bank(layer.experts, kept[kept < n].tolist())}
        names = "gate", "shared_gate"
        gates = [_narrowed(gate, ids, kept) for gate, ids in _gates(layer)]
        parts |= zip(names, gates, strict=False)
        if s:
            own = sliced_bank(layer.task_experts, (kept[kept >= n] - n).tolist())
            number = own.num_experts // len(layer.task_names)
            parts |= {"task_experts": own, "num_task_experts": number}
        new = copies[id(layer)]
        replace_parts(copy, new, parts)
        if layer in mixtures:
            new.decide_dispatch()
    return copy


def _check(layers, num_experts):
    """Check that experts can be removed from layers."""
    if not layers:
        raise ValueError(
            "`data` are for per-example gates. Received: a model with static gates "
            "alone. Leave `data` and `experts` out: unused experts are removed."
        )
    for layer in layers:
        gates, n = [gate for gate, _ in _gates(layer)], layer.experts.num_experts
        wanted = "a gate with a logit per expert, to which `distill` changes others"
        for gate in gates:
            check_type("gate", gate, LogitGate, wanted)
        # Each gate has as many experts as it may choose.
        k = max(gate.max_experts() or 1 for gate in gates)
        least = min(m for m in range(1, k + 1) if m + min(m, _num_own(layer)) >= k)
        # In a `CGC`, experts of one bank have the same input in any case.
        one_input = layer.experts.shared_input or isinstance(layer, CGC)
        if not (one_input and least <= num_experts <= n):
            raise ValueError(
                f"From {least} to {n} experts, which share one input, can be kept in "
                f"the layer {layer.name!r}. Received: experts={num_experts} and "
                f"shared_input={layer.experts.shared_input}."
            )


def _num_own(layer):
    """The number of experts of each task alone."""
    return getattr(layer, "num_task_experts", 0)


def _gates(layer):
    """List the gates of a layer, each with the numbers of its experts, `(gates, n)`.

    The experts of tasks, in the order of their bank, come after the others.
    """
    n, s = layer.experts.num_experts, _num_own(layer)
    num_gates = layer.gate.num_gates or 1
    ids = np.tile(np.arange(n), (num_gates, 1))
    own = n + np.arange(num_gates * s).reshape(num_gates, s)
    found = [(layer.gate, np.hstack([ids, own]))]
    if getattr(layer, "shared_gate", None) is not None:
        found.append((layer.shared_gate, np.arange(n + own.size)[None]))
    return found


def _kept(layer, saliency, num_experts):
    """List the experts of the largest saliency: of the bank, and of each task."""
    n, s = layer.experts.num_experts, _num_own(layer)
    groups = [np.arange(n), *np.arange(n, len(saliency)).reshape(-1, max(s, 1))]
    order = [ids[np.argsort(-saliency[ids], kind="stable")] for ids in groups]
    return np.sort(np.concatenate([ids[:num_experts] for ids in order]))


def _measure(model, layers, data):
    """Sum the saliency, number and weight of choices: arrays `(3, n)` by layer."""
    data = as_inputs(model, data)
    length = len(keras.tree.flatten(data)[0])
    if not length:
        raise ValueError(
            "`data` must have one example or more. Received: no examples. Pass inputs "
            "of the model, such as some thousands of examples of the training."
        )
    found = {layer: np.zeros((3, 1 + _gates(layer)[-1][1].max())) for layer in layers}
    gates = {id(gate): (layer, ids) for layer in layers for gate, ids in _gates(layer)}
    wrong: list[Any] = []
    start: Any = 0

    def note(call):
        if id(call.gate) not in gates:
            return
        layer, ids = gates[id(call.gate)]
        weights = _numbers(call.routing.only_valid(call.routing.weights))
        weights = weights.reshape(-1, *ids.shape).astype("float64")
        banks = [each for each in (call.experts, call.own) if each is not None]
        flat = [_numbers(each).reshape(*each.shape[:2], -1) for each in banks]
        norms = np.concatenate([np.linalg.norm(x, axis=-1) for x in flat], axis=1)
        chosen = weights * norms[:, ids]
        bad = np.flatnonzero(~np.isfinite(chosen).all(axis=(1, 2)))
        if len(bad):
            size = min(BATCH_SIZE, length - start)
            wrong.append((start + bad[0] * size // len(chosen), layer.name))
        added = chosen, weights > 0, weights
        for total, values in zip(found[layer], added, strict=True):
            np.add.at(total, ids, values.sum(axis=0))

    for start in range(0, length, BATCH_SIZE):
        rows = slice(start, start + BATCH_SIZE)
        batch = keras.tree.map_structure(
            lambda x, rows=rows: ops.convert_to_tensor(x[rows]), data
        )
        # Counters of layers and gates stay as they are.
        with keras.StatelessScope(), recording(note):
            model(batch, training=False)
        for row, name in wrong:
            raise ValueError(
                "`data` must give finite weights and outputs of all experts. "
                f"Received: NaN or infinity in the layer {name!r}, first for row "
                f"{row}. Replace such features, or leave these rows out."
            )
    return found


@contextlib.contextmanager
def _without_dispatch(layers):
    """Evaluate all experts on all examples."""
    before = [layer.dispatches for layer in layers]
    try:
        for layer in layers:
            layer.dispatches = False
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.dispatches = value


def _numbers(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def _narrowed(gate, ids, kept):
    """Copy a gate with the logits of some of its experts alone."""
    places = np.nonzero(np.isin(ids, kept))[1].reshape(len(ids), -1)

    def take(value, shape):
        # It has an entry for each expert of each gate.
        value = value.reshape(-1, *ids.shape)
        return value[:, np.arange(len(ids))[:, None], places].reshape(shape)

    return narrowed_gate(gate, places.shape[1], take)
