"""Copies of trained models with other experts or gates."""

import itertools
from collections.abc import Callable
from typing import Any

import keras

from dselectk_keras._keras import compile_arguments, copy_state, settings
from dselectk_keras.gates import Gate
from dselectk_keras.layers.gated_experts import GatedExperts


def layers_to_replace(model: Any, kind: Any = GatedExperts, more: Any = None) -> list:
    """List the layers of a class, after checks that `rebuild` can replace them.

    The others that it lists, of the class `more`, need not be there.
    """
    config = model.get_config() if isinstance(model, keras.Model) else {}
    if "layers" not in config or not model.built:
        raise ValueError(
            "A built functional or sequential model is needed. Received: "
            f"{model!r}, a {type(model).__name__}. Build it, or make it functional: "
            "call the layers on `keras.Input`, as in `keras.Model(inputs, outputs)`."
        )
    kinds = kind if more is None else (kind, more)
    layers = [layer for layer in model.layers if isinstance(layer, kinds)]
    if not layers:
        found = [f"{layer.name} ({type(layer).__name__})" for layer in model.layers]
        missing = "" if more is None else f", and no `{more.__name__}`"
        raise ValueError(
            f"The model has no layer of the class `{kind.__name__}`, such as `MMoE`"
            f"{missing}. Received layers: {', '.join(found)}."
        )
    for one, other in itertools.combinations(layers, 2):
        for part in ("experts", "gate", "routing_network"):
            if _part(one, part) is _part(other, part) is not None:
                raise ValueError(
                    "Layers that share a part cannot be replaced: each would get its "
                    f"own. Received: {part!r} shared by {one.name}, {other.name}. "
                    f"Build the layers with separate {part!r}."
                )
    return layers


def _part(layer, name):
    """A part of a layer; a gate of its own is its own part."""
    is_gate = name == "gate" and isinstance(layer, Gate)
    return layer if is_gate else getattr(layer, name, None)


def rebuild(model: Any, layers: list[Any], change: Callable) -> Any:
    """Copy a model and its weights, but for some layers, whose settings change.

    `change` is a function of such a layer and its entry in the config of the model,
    which it changes. The copy has the same class and is not compiled. Layers that
    nothing reads any more are left out.
    """
    replaced = {layer.name: layer for layer in layers}
    config = model.get_config()
    if "tasks" in config:
        # Tasks that share an object as loss or metric are computed together.
        config["tasks"] = model.tasks
    for each in config["layers"]:
        if each["config"]["name"] in replaced:
            change(replaced[each["config"]["name"]], each)
    copy = type(model).from_config(config)
    left = {layer.name: layer for layer in copy.layers}
    for layer in model.layers:
        if layer.name in left.keys() - replaced.keys():
            copy_state(layer, left[layer.name])
    if hasattr(model, "task_losses"):
        copy_state(model.task_losses, copy.task_losses)
    return copy


def compile_alike(model: Any, copy: Any) -> None:
    """Compile a copy with the arguments of a compiled model, and with new states."""
    arguments = compile_arguments(model)
    copy.compile(**keras.tree.map_structure(_anew, arguments))
    # Else Keras warns when it loads the copy, whose optimizer it builds.
    copy.optimizer.build(copy.trainable_variables)


def _anew(part):
    """Copy an optimizer or metric, but not its state; return others as they are."""
    if not isinstance(part, (keras.Optimizer, keras.Metric)):
        return part
    # Such as a schedule. Keras finds only what is registered, or in a scope.
    used = [value for value in vars(part).values() if callable(value)]
    own = {getattr(each, "__name__", type(each).__name__): each for each in used}
    types = {name: x if hasattr(x, "__name__") else type(x) for name, x in own.items()}
    with keras.saving.custom_object_scope(types):
        return type(part).from_config(settings(part) or part.get_config())
