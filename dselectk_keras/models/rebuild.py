"""Copies of trained models with other experts or gates."""

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import (
    all_layers,
    compile_arguments,
    copy_state,
    has_graph,
    settings,
)
from dselectk_keras.layers.gated_experts import GatedExperts


def layers_to_replace(model: Any) -> list:
    """List the layers with experts and gates of a functional model."""
    if not has_graph(model):
        raise ValueError(
            "A built functional or sequential model is needed. Received: "
            f"{model!r}, a {type(model).__name__}. Build it, or make it functional: "
            "call the layers on `keras.Input`, as in `keras.Model(inputs, outputs)`."
        )
    return _checked(model, [x for x in model.layers if isinstance(x, GatedExperts)])


def mixtures_and_gates(
    model: Any, kinds: Any, gates: Any = (), needed: bool = True
) -> list:
    """List the layers of some classes in a model, also those inside of other layers.

    Gates that a functional model calls itself may be listed too. If one is `needed`,
    and there is none, this is an error.
    """
    if not isinstance(model, keras.Model) or not model.built:
        raise ValueError(
            "A built model is needed. Received: "
            f"{model!r}, a {type(model).__name__}. Call it on a batch of inputs."
        )
    found = all_layers(model, kinds)
    if has_graph(model):
        found += [each for each in model.layers if isinstance(each, gates)]
    return _checked(model, found) if found or needed else []


def _checked(model, layers):
    """Check that there are layers, and that no two have a part in common."""
    if not layers:
        found = [f"{layer.name} ({type(layer).__name__})" for layer in model.layers]
        raise ValueError(
            "The model has no layer with experts that can be changed, such as `MMoE`, "
            "and no gate that a functional model calls itself. "
            f"Received layers: {', '.join(found)}."
        )
    for one, other in itertools.combinations(layers, 2):
        # A gate of its own is its own part.
        defaults = {"experts": None, "gate": one, "routing_network": None}
        for part, default in defaults.items():
            own = getattr(one, part, default)
            if own is not None and own in (other, getattr(other, part, None)):
                raise ValueError(
                    "Layers that share a part cannot be replaced: each would get its "
                    f"own. Received: {part!r} shared by {one.name}, {other.name}. "
                    f"Build the layers with separate {part!r}."
                )
    return layers


def rebuild(
    model: Any, layers: Sequence[Any] = (), change: Callable = lambda *_: None
) -> Any:
    """Copy a model and its weights, but for some layers, whose settings change.

    `change` is a function of such a layer and its entry in the config of a functional
    model, which it changes. The copy has the same class and is not compiled. Layers
    that nothing reads any more are left out.
    """
    if not has_graph(model):
        return _copy_of_own_class(model)
    replaced = {layer.name: layer for layer in layers}
    config, nameless = model.get_config(), []
    if "tasks" in config:
        # Tasks that share an object as loss or metric are computed together.
        config["tasks"] = model.tasks
    for each in config["layers"]:
        # The config of a sequential model has names only in those of the layers.
        name = each.get("name", each["config"].get("name"))
        if name in replaced:
            change(replaced[name], each)
        if "name" not in each["config"]:
            nameless.append(name)
    with warnings.catch_warnings():
        # Keras warns of layers of a user that have no `build`. Their call builds them.
        warnings.filterwarnings("ignore", message=r".*`build\(\)` was called on layer")
        copy = type(model).from_config(config)
    _name_alike(model, copy, nameless)
    left = {layer.name: layer for layer in copy.layers}
    for layer in model.layers:
        if layer.name in left.keys() - replaced.keys():
            copy_state(layer, left[layer.name])
    if hasattr(model, "task_losses"):
        copy_state(model.task_losses, copy.task_losses)
    # Keras exports to ONNX what was called.
    copy(copy.inputs[0] if isinstance(copy, keras.Sequential) else copy.input)
    return copy


def _copy_of_own_class(model):
    """Copy a model that is neither functional nor sequential."""
    config = keras.saving.serialize_keras_object(model)
    config.pop("compile_config", None)
    copy = keras.saving.deserialize_keras_object(config)
    if [w.shape for w in model.weights] != [w.shape for w in copy.weights]:
        raise ValueError(
            "A model of your own class must return the arguments of `__init__` in "
            f"`get_config`. Received: {model!r}, whose copy has other weights."
        )
    copy_state(model, copy)
    return copy


def _name_alike(model, copy, nameless):
    """Give layers whose config has no name the names that they had.

    Such are layers of a user that pass `**kwargs` on, and have no `get_config`.
    """
    if isinstance(model, keras.Sequential):
        pairs = zip(model.layers, copy.layers, strict=True)
    else:
        named = {layer.name for layer in model.layers} - {*nameless}
        new = [layer for layer in copy.layers if layer.name not in named]
        old = [layer for layer in model.layers if layer.name in nameless]
        if old and [*map(type, old)] != [*map(type, new)]:
            raise ValueError(
                "Layers of your own must have their name in `get_config`. Received: "
                f"{', '.join(nameless)}. Begin it with super().get_config(), and pass "
                "`**kwargs` to super().__init__."
            )
        pairs = zip(old, new, strict=False)
    for layer, twin in pairs:
        twin.name = layer.name


def sliced_bank(bank: Any, experts: Sequence[int]) -> Any:
    """A bank of some experts of a bank, with its name."""
    part = bank.sliced(experts)
    part.name = bank.name
    return part


def narrowed_gate(gate: Any, num_experts: int, take: Callable, **changes: Any) -> Any:
    """A gate of some experts or rows of a gate, with its name.

    `take` is a function of a variable of another shape, and of the new shape.
    """
    new = gate.unbuilt_copy(name=gate.name, **changes)
    new.build((None, num_experts), gate.routing_dim and (None, gate.routing_dim))
    for variable, old in zip(new.variables, gate.variables, strict=True):
        value, shape = ops.convert_to_numpy(old), tuple(variable.shape)
        variable.assign(value if value.shape == shape else take(value, shape))
    new.trainable = gate.trainable
    return new


def copies_of_layers(model: Any, copy: Any) -> dict:
    """The copy of each layer of a model that `rebuild` has copied, by its `id`."""
    pairs = [(model, copy)]
    if has_graph(model):
        names = {layer.name for layer in copy.layers}
        pairs = [(x, copy.get_layer(x.name)) for x in model.layers if x.name in names]
    return {
        id(old): new
        for pair in pairs
        for old, new in zip(*map(all_layers, pair), strict=False)
    }


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
