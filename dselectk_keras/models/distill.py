"""Replace the gates of a trained model."""

from typing import Any

import keras

from dselectk_keras._keras import all_layers, copy_state
from dselectk_keras.gates import Gate
from dselectk_keras.models.rebuild import layers_to_replace, rebuild
from dselectk_keras.utils import NUM_SEEDS, check_flags

# Parts of a layer that the copy has, too.
PARTS = ("experts", "routing_network")


def distill(model: Any, gate: Gate, freeze_experts: bool = True) -> Any:
    """Copy a trained model with other gates, which you then train with `fit`.

    All other weights are copied, those of each `routing_network` too. A trainable
    variable of the new gate starts from that of the old gate with the same name and
    shape, if there is one. What is not trained begins anew: the step is 0, schedules
    start again, and no choice of experts is final.

    This is the paper's distillation: train the experts with a gate that
    evaluates all of them. Then freeze them and train a cheaper gate.

    Args:
        model: A functional model, such as `MultitaskModel`, with layers such as `MMoE`.
            A model inside of it is copied as it is, with its gates.
        gate: A gate that is not built yet. Every layer with a gate gets a copy.
        freeze_experts: Whether the experts of the copy are frozen. Otherwise, they are
            trained, without layers inside of a bank that are frozen.

    Returns:
        A model of the same class, not compiled.

    Example:
        >>> inputs = keras.Input((5,))
        >>> experts = DenseExperts(4, [8, 2])
        >>> layer = MoE(experts, SoftmaxGate(), per_example=True)
        >>> teacher = keras.Model(inputs, layer(inputs))
        >>> student = distill(teacher, SwitchGate())
        >>> type(student.layers[-1].gate).__name__, len(student.trainable_variables)
        ('SwitchGate', 1)

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Section 5.1.
    """
    if not isinstance(gate, Gate) or gate.built:
        raise ValueError(
            "`gate` must be a gate that is not built yet, such as `SoftmaxGate()`. "
            f"Received: {gate!r}."
        )
    check_flags(freeze_experts=freeze_experts)
    layers = layers_to_replace(model)
    first = layers[0].gate

    def change(layer, entry):
        settings = entry["config"]
        num_gates = gate.num_gates or layer.gate.num_gates
        settings["gate"] = _shifted(gate, layer.gate, first, num_gates=num_gates)
        if settings.get("shared_gate") is not None:
            settings["shared_gate"] = _shifted(gate, layer.shared_gate, first)
        # Raises the layer's own error if the gate is wrong. Not with the configs of
        # parts: Keras empties that of a functional model when it reads it.
        parts = {name: getattr(layer, name) for name in PARTS if name in settings}
        type(layer)(**{**settings, **parts})

    student = rebuild(model, layers, change)
    for layer in layers:
        copy = student.get_layer(layer.name)
        for part in (*PARTS, "task_experts"):
            if getattr(layer, part, None) is not None:
                new = getattr(copy, part)
                copy_state(getattr(layer, part), new)
                if part != "routing_network":
                    _set_trainable(new, not freeze_experts)
        for part in ("gate", "shared_gate"):
            if getattr(layer, part, None) is not None:
                _copy_alike(getattr(layer, part), getattr(copy, part))
    return student


def _set_trainable(bank, value):
    """Freeze a bank or train it; one that has this value keeps the layers inside."""
    if bank.trainable != value:
        # On TensorFlow, a layer does not pass on a value that equals its own.
        for layer in all_layers(bank):
            layer.trainable = value


def _shifted(gate, old, first, **changes):
    """Copy a gate, with the shift of the seed that its layer gave to the old gate."""
    if None not in (gate.seed, old.seed, first.seed):
        changes["seed"] = (gate.seed + old.seed - first.seed) % NUM_SEEDS
    return gate.unbuilt_copy(**changes)


def _copy_alike(source, target):
    """Copy the trainable variables that both gates have, by name and shape."""
    found = {(w.name, tuple(w.shape)): w for w in source.weights}
    for variable in target.trainable_variables:
        twin = found.get((variable.name, tuple(variable.shape)))
        if twin is not None:
            # Through NumPy: on JAX they would share a buffer, which a step donates.
            variable.assign(keras.ops.convert_to_numpy(twin))
