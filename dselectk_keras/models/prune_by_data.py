"""Remove the experts of per-example gates that matter least on data."""

from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import calls_in, copy_state
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.record import recording
from dselectk_keras.layers import CGC, MoE
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.models.rebuild import layers_to_replace, rebuild
from dselectk_keras.utils import check_count

BATCH_SIZE = 1024


def pruned_by_data(model: Any, data: Any, num_experts: Any) -> Any:
    """Make the copy of `condense` for per-example gates, not compiled."""
    check_count("experts", num_experts)
    layers = layers_to_replace(model, MoE, more=CGC)
    layers = [layer for layer in layers if layer.per_example]
    _check(layers, num_experts)
    parts, of_tasks = {}, {}
    for layer in layers:
        saliency, counts, sums = _measure(model, layer, data)
        kept = _kept(layer, saliency, num_experts)
        lost = [1 - each[kept].sum() / each.sum() for each in (counts, sums)]
        print(  # noqa: T201
            f"{layer.name}: {len(kept)} of {len(saliency)} experts kept. Others had "
            f"{lost[0]:.1%} of the choices, and {lost[1]:.1%} of the weight."
        )
        names = "gate", "shared_gate"
        gates = [_narrowed(gate, ids, kept) for gate, ids in _gates(layer)]
        parts[layer.name] = dict(zip(names, gates, strict=False))
        n = layer.experts.num_experts
        bank = layer.experts.sliced(kept[kept < n].tolist())
        bank.name = layer.experts.name
        parts[layer.name]["experts"] = bank
        if _num_own(layer):
            own = layer.task_experts.sliced((kept[kept >= n] - n).tolist())
            number = own.num_experts // len(layer.task_names)
            of_tasks[layer.name], parts[layer.name]["num_task_experts"] = own, number

    copy = rebuild(
        model, layers, lambda layer, entry: entry["config"].update(parts[layer.name])
    )
    for layer in layers:
        new = copy.get_layer(layer.name)
        if getattr(layer, "routing_network", None) is not None:
            copy_state(layer.routing_network, new.routing_network)
        if layer.name in of_tasks:
            copy_state(of_tasks[layer.name], new.task_experts)
            if not layer.task_experts.trainable:  # Parts may be frozen anyway.
                new.task_experts.trainable = False
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
        for gate in gates:
            if not isinstance(gate, LogitGate):
                raise ValueError(
                    "Experts can be removed by data from gates with a logit for each, "
                    "such as `TopKGate`, `SwitchGate` and `SoftmaxGate`. Received: "
                    f"{type(gate).__name__} in the layer {layer.name!r}. `distill` "
                    "the model to such a gate first."
                )
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


def _measure(model, layer, data):
    """Compute saliencies, and the numbers of choices and sums of weights, `(n,)`."""
    data = as_inputs(model, data)
    totals, counts, sums = np.zeros((3, 1 + max(ids.max() for _, ids in _gates(layer))))
    for call in calls_in(model):
        if call.operation is not layer:
            continue
        part = keras.Model(model.input, call.input_tensors)
        known = [*map(id, call.input_tensors)]
        for start in range(0, len(keras.tree.flatten(data)[0]), BATCH_SIZE):
            rows = slice(start, start + BATCH_SIZE)
            batch = keras.tree.map_structure(
                lambda x, rows=rows: ops.convert_to_tensor(x[rows]), data
            )
            tensors = keras.tree.flatten(part(batch, training=False))
            # A mask may be among the arguments.
            given = dict(zip(known, tensors, strict=True))
            arguments = call.arguments.fill_in(given)
            for weights, norms, ids in _weights_and_norms(layer, *arguments):
                chosen = np.einsum("bgn,bgn->gn", weights, norms[:, ids])
                np.add.at(totals, ids, chosen)
                np.add.at(counts, ids, (weights > 0).sum(axis=0))
                np.add.at(sums, ids, weights.sum(axis=0))
    return totals / np.maximum(counts, 1), counts, sums


def _weights_and_norms(layer, args, kwargs):
    """Compute the weights `(positions, gates, n)` of each gate, and all norms."""
    calls: list[Any] = []
    # Counters of the layer and of its gates stay as they are.
    with keras.StatelessScope(), recording(calls.append):
        layer(*args, **{**kwargs, "training": False})
        outputs = calls[0].experts
        if outputs is None:  # They were dispatched.
            outputs = layer.experts(layer.flatten(args[0]), training=False)
            outputs = layer.summed(outputs)
    banks = [each for each in (outputs, calls[0].own) if each is not None]
    flat = [_numbers(each).reshape(*each.shape[:2], -1) for each in banks]
    norms = np.concatenate([np.linalg.norm(each, axis=-1) for each in flat], axis=1)
    for call, (_, ids) in zip(calls, _gates(layer), strict=True):
        weights = _numbers(call.routing.weights).reshape(-1, *ids.shape)
        yield weights.astype("float64"), norms, ids


def _numbers(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def _narrowed(gate, ids, kept):
    """Copy a gate with the logits of some of its experts alone."""
    places = np.nonzero(np.isin(ids, kept))[1].reshape(len(ids), -1)
    new = gate.unbuilt_copy()
    new.name = gate.name
    new.build((None, places.shape[1]), (None, gate.routing_dim))
    for variable, old in zip(new.variables, gate.variables, strict=True):
        value, shape = ops.convert_to_numpy(old), tuple(variable.shape)
        if value.shape != shape:  # It has an entry for each expert of each gate.
            value = value.reshape(-1, *ids.shape)
            value = value[:, np.arange(len(ids))[:, None], places].reshape(shape)
        variable.assign(value)
    new.trainable = gate.trainable
    return new
