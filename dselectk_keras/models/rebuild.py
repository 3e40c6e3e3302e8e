"""Copies of trained models with other experts or gates."""

from collections.abc import Callable
from typing import Any

import keras

from dselectk_keras._keras import copy_state
from dselectk_keras.layers.gated_experts import GatedExperts


def layers_to_replace(model: Any, kind: type = GatedExperts) -> list[Any]:
    """List the layers with experts and a gate, after checks that a copy is possible.

    Args:
        model: A built functional or sequential model.
        kind: The class of the layers.
    """
    config = model.get_config() if isinstance(model, keras.Model) else {}
    if "layers" not in config or not model.built:
        raise ValueError(
            "A built functional or sequential model is needed, which can be copied "
            f"from its config. Received: {model!r}, a {type(model).__name__}. Build "
            "it, or make it functional: call the layers on `keras.Input`, as in "
            "`keras.Model(inputs, outputs)`."
        )
    layers = [layer for layer in model.layers if isinstance(layer, kind)]
    if not layers:
        raise ValueError(
            "The model has no layer with experts and a gate, such as `MMoE`, outside "
            "of other layers. Received layers: "
            f"{', '.join(layer.name for layer in model.layers)}."
        )
    for part in ("experts", "gate", "routing_network"):
        owners = {}
        for layer in layers:
            owners.setdefault(id(getattr(layer, part)), []).append(layer.name)
        owners.pop(id(None), None)
        for names in owners.values():
            if len(names) > 1:
                raise ValueError(
                    "Layers that share a part cannot be replaced: each would get its "
                    f"own. Received: {part!r} shared by {', '.join(names)}. Build the "
                    f"layers with separate {part!r}."
                )
    return layers


def rebuild(model: Any, layers: list[Any], change: Callable) -> Any:
    """Copy a model and its weights, but for some layers, whose settings change.

    Args:
        model: The model.
        layers: The result of `layers_to_replace`.
        change: A function of such a layer and of the dict of its arguments, which the
            function changes.

    Returns:
        A model of the same class, not compiled.
    """
    replaced = {layer.name: layer for layer in layers}
    config = model.get_config()
    if "tasks" in config:
        # Tasks that share an object as loss or metric are computed together.
        config["tasks"] = model.tasks
    for each in config["layers"]:
        if each["config"]["name"] in replaced:
            change(replaced[each["config"]["name"]], each["config"])
    copy = type(model).from_config(config)
    for layer in model.layers:
        if layer.name not in replaced:
            copy_state(layer, copy.get_layer(layer.name))
    if hasattr(model, "task_losses"):
        copy_state(model.task_losses, copy.task_losses)
    return copy
