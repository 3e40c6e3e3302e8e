"""Remove the experts of per-example gates that matter least on data."""

from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import calls_in, copy_state, mask_of
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.layers import MoE
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.models.rebuild import layers_to_replace, rebuild
from dselectk_keras.utils import check_count

BATCH_SIZE = 1024


def pruned_by_data(model: Any, data: Any, num_experts: Any) -> Any:
    """Make the copy of `condense` for per-example gates, not compiled."""
    check_count("experts", num_experts)
    layers = [layer for layer in layers_to_replace(model, MoE) if layer.per_example]
    _check(layers, num_experts)
    parts = {}
    for layer in layers:
        saliency, counts, sums = _measure(model, layer, data)
        kept = np.sort(np.argsort(-saliency, kind="stable")[:num_experts])
        lost = [1 - each[kept].sum() / each.sum() for each in (counts, sums)]
        print(  # noqa: T201
            f"{layer.name}: {num_experts} of {len(saliency)} experts kept. Others had "
            f"{lost[0]:.1%} of the choices, and {lost[1]:.1%} of the weight."
        )
        bank = layer.experts.sliced(kept.tolist())
        bank.name = layer.experts.name
        parts[layer.name] = bank, _narrowed(layer.gate, kept)

    def change(layer, entry):
        names = "experts", "gate"
        entry["config"].update(zip(names, parts[layer.name], strict=True))

    copy = rebuild(model, layers, change)
    for layer in layers:
        if layer.routing_network is not None:
            network = copy.get_layer(layer.name).routing_network
            copy_state(layer.routing_network, network)
    return copy


def _check(layers, num_experts):
    """Check that experts can be removed from layers."""
    if not layers:
        raise ValueError(
            "`data` are for per-example gates. Received: a model with static gates "
            "alone. Leave `data` and `experts` out: unused experts are removed."
        )
    for layer in layers:
        n, k = layer.experts.num_experts, layer.gate.max_experts() or 1
        if not isinstance(layer.gate, LogitGate):
            raise ValueError(
                "Experts can be removed by data from gates with a logit for each, such "
                "as `TopKGate`, `SwitchGate` and `SoftmaxGate`. Received: "
                f"{type(layer.gate).__name__} in the layer {layer.name!r}."
            )
        if not (layer.experts.shared_input and k <= num_experts <= n):
            raise ValueError(
                f"From {k} to {n} experts, which share one input, can be kept in the "
                f"layer {layer.name!r}. Received: experts={num_experts} and "
                f"shared_input={layer.experts.shared_input}."
            )


def _measure(model, layer, data):
    """Compute saliencies, and the numbers of choices and sums of weights, `(n,)`."""
    data = as_inputs(model, data)
    total: Any = 0.0
    counts, sums = total, total
    for call in calls_in(model):
        if call.operation is not layer:
            continue
        seen = [*call.arguments.args, call.arguments.kwargs.get("routing_inputs")]
        seen = [tensor for tensor in seen[:2] if tensor is not None]
        part = keras.Model(model.input, seen)
        for start in range(0, len(keras.tree.flatten(data)[0]), BATCH_SIZE):
            rows = slice(start, start + BATCH_SIZE)
            batch = keras.tree.map_structure(
                lambda x, rows=rows: ops.convert_to_tensor(x[rows]), data
            )
            tensors = keras.tree.flatten(part(batch, training=False))
            weights, norms = _weights_and_norms(layer, *tensors)
            total = total + np.einsum("bgn,bn->n", weights, norms)
            counts = counts + (weights > 0).sum(axis=(0, 1))
            sums = sums + weights.sum(axis=(0, 1))
    return total / np.maximum(counts, 1), counts, sums


def _weights_and_norms(layer, inputs, routing_inputs=None):
    """Compute the weights `(positions, gates, n)` and the norms `(positions, n)`."""
    outputs = layer.summed(layer.experts(layer.flatten(inputs), training=False))
    tensors = layer.expert_weights(inputs, routing_inputs), outputs
    weights, outputs = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in tensors)
    positions, n = outputs.shape[:2]
    weights = weights.reshape(positions, -1, n).astype("float64")
    mask = mask_of(inputs)
    if mask is not None and len(mask.shape) == layer.num_routed_axes:
        # Padding chooses nothing.
        weights *= ops.convert_to_numpy(mask).reshape(-1, 1, 1)
    return weights, np.linalg.norm(outputs.reshape(positions, n, -1), axis=-1)


def _narrowed(gate, kept):
    """Copy a gate with the logits of some experts alone."""
    new = gate.unbuilt_copy()
    new.name = gate.name
    new.build((None, len(kept)), (None, gate.routing_dim))
    for variable, old in zip(new.variables, gate.variables, strict=True):
        value, shape = ops.convert_to_numpy(old), tuple(variable.shape)
        if value.shape != shape:  # It has an entry for each expert of each gate.
            value = value.reshape(*shape[:-1], -1, gate.num_experts)
            value = value[..., kept].reshape(shape)
        variable.assign(value)
    new.trainable = gate.trainable
    return new
