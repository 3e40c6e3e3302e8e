"""Replace the gates of a trained model."""

from typing import Any

import keras

from dselectk_keras._keras import copy_state
from dselectk_keras.gates import Gate
from dselectk_keras.layers.gated_experts import GatedExperts
from dselectk_keras.models.task import config_with_tasks
from dselectk_keras.utils import deserialize_if_config


def distill(model: Any, gate: Gate, freeze_experts: bool = True) -> Any:
    """Copy a trained model with other gates, which you then train with `fit`.

    The features, experts, towers and each `routing_network` are copied. A variable of
    the new gate starts from the variable of the old gate with the same name and shape,
    if there is one. This includes the step. Other variables are initialized. An
    attentive gate has no variables in common with other gates, so the routing that it
    has learned is only kept in a `routing_network`.

    A layer keeps its `dispatch`, such as a capacity, if the new gate can have it.
    Otherwise it is `"auto"`, which drops no choices.

    A model inside of the model is copied as it is, with its gates.

    This is the paper's distillation: train the experts with an attentive gate, which
    evaluates all experts. Then freeze them and train a cheaper gate.

    Args:
        model: A trained functional model, or `MultitaskModel`, with layers such as
            `MoE` or `MMoE`.
        gate: A gate that is not built yet. Every layer with a gate gets a copy.
        freeze_experts: Whether the experts of the copy are frozen.

    Returns:
        A model of the same class, not compiled.

    Example:
        >>> inputs = keras.Input((5,))
        >>> layer = MoE(DenseExperts(4, [8, 2]), AttentiveGate(8), per_example=True)
        >>> teacher = keras.Model(inputs, layer(inputs))
        >>> student = distill(teacher, TopKGate(num_nonzeros=1))
        >>> type(student.layers[-1].gate).__name__, len(student.trainable_variables)
        ('TopKGate', 1)

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Section 5.1.
    """
    if not isinstance(gate, Gate) or gate.built:
        raise ValueError(
            "`gate` must be a gate that is not built yet, such as `SoftmaxGate()`. "
            f"Received: {gate!r}."
        )
    config = config_with_tasks(model) if isinstance(model, keras.Model) else {}
    if "layers" not in config or not model.built:
        raise ValueError(
            "`model` must be a trained functional or sequential model. Received: "
            f"{model!r}, which is not built or not functional."
        )
    names = [layer.name for layer in model.layers if isinstance(layer, GatedExperts)]
    if not names:
        raise ValueError(
            "The model has no layer with experts and a gate, such as `MoE` or `MMoE`. "
            f"Received layers: {', '.join(layer.name for layer in model.layers)}."
        )
    parts = {}
    for layer in config["layers"]:
        if layer["config"]["name"] in names:
            teacher = model.get_layer(layer["config"]["name"])
            for part in ("experts", "routing_network"):
                # What layers of the teacher share, layers of the student share too.
                own, copy = getattr(teacher, part), layer["config"][part]
                copy = parts.setdefault(id(own), deserialize_if_config(copy))
                layer["config"][part] = copy
            _put_gate(layer["config"], gate, teacher.gate.num_gates)
            # If the gate does not fit, this raises the layer's own error. Keras would
            # wrap the error in another one.
            type(teacher)(**layer["config"])
    student = type(model).from_config(config)
    _copy_weights(model, student, names)
    for name in names:
        for part in ("experts", "task_experts"):
            if getattr(student.get_layer(name), part, None) is not None:
                getattr(student.get_layer(name), part).trainable = not freeze_experts
    return student


def _put_gate(config, gate, num_gates):
    """Replace the gate, and the shared gate if there is one, in a layer's config."""
    if gate.per_example_only and not config["per_example"]:
        raise ValueError(
            f"{type(gate).__name__} is always per-example. Received: a model in which "
            f"the gate of {config['name']!r} is static. Use a gate that can be static."
        )
    if "dispatch" in config and not _can_dispatch(gate, config["dispatch"]):
        config["dispatch"] = "auto"
    config["gate"] = keras.saving.serialize_keras_object(gate)
    if gate.num_gates is None:
        config["gate"]["config"]["num_gates"] = num_gates
    if config.get("shared_gate") is not None:
        config["shared_gate"] = keras.saving.serialize_keras_object(gate)


def _can_dispatch(gate, dispatch):
    """Whether a layer with this gate can have this `dispatch` (see `MoE`)."""
    if isinstance(dispatch, (str, bool)):
        return not dispatch or gate.max_experts(True) is not None
    return gate.max_experts() is not None


def _copy_weights(model, student, names):
    """Copy all weights, except those of the gates that the student does not have."""
    for layer in model.layers:
        copy = student.get_layer(layer.name)
        if layer.name not in names:
            copy_state(layer, copy)
            continue
        for part in ("experts", "task_experts", "routing_network"):
            if getattr(copy, part, None) is not None:
                copy_state(getattr(layer, part), getattr(copy, part))
        for part in ("gate", "shared_gate"):
            if getattr(copy, part, None) is not None:
                _copy_alike(getattr(layer, part), getattr(copy, part))
    if hasattr(model, "task_losses"):
        student.task_losses.set_weights(model.task_losses.get_weights())


def _copy_alike(source, target):
    """Copy the variables that both gates have, by name and shape."""
    found = {(w.name, tuple(w.shape)): w for w in source.weights}
    ratios = {getattr(gate, "learning_rate_ratio", 1.0) for gate in (source, target)}
    for variable in target.weights:
        twin = found.get((variable.name, tuple(variable.shape)))
        # Variables are logits divided by the ratio, so the ratios must be equal.
        if twin is not None and len(ratios) == 1:
            # Through NumPy: on JAX they would share a buffer, which a step donates.
            variable.assign(keras.ops.convert_to_numpy(twin))
