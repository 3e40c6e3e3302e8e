"""The inputs of a gate, their checks and shapes."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from dselectk_keras.utils import Tensor, shown


class RouterInputs(NamedTuple):
    """The inputs of a gate in one call.

    Args:
        routing_inputs: The inputs of a per-example gate; `None` for a static one.
        examples: The examples that `SampleSimilarityRegularizer` compares; by default,
            the routing inputs.
        valid: Which examples count, booleans `(batch,)`; `None` is all.
    """

    routing_inputs: Tensor = None
    examples: Tensor = None
    valid: Tensor = None


def complete_inputs(gate: Any, inputs: Any) -> RouterInputs:
    """Check the inputs of a gate, routing inputs or `RouterInputs`, and complete them.

    A gate of one's own may have a named tuple with more fields. Ids `(batch,)` get an
    axis of features, and the examples as many axes as the routing inputs have.
    """
    if not hasattr(inputs, "routing_inputs"):
        inputs = RouterInputs(inputs)
    x, examples = inputs.routing_inputs, inputs.examples
    check_built(gate)
    if (gate.routing_dim is None) != (x is None):
        built, mend = ("per-example", "pass") if x is None else ("static", "leave out")
        raise ValueError(
            f"The gate {gate.name!r} was built {built}: {mend} routing inputs, "
            f"gate(experts{', routing_inputs' * (x is None)}). Received: "
            f"{'no ' * (x is None)}routing inputs."
        )
    if x is None:
        return inputs._replace(valid=None)
    if np.shape(x):  # A Python number may be too large to convert.
        x = ops.convert_to_tensor(x)
    if len(np.shape(x)) == 1:
        x = ops.expand_dims(x, -1)
    shape = tuple(np.shape(x))
    if shape[-1:] != (gate.routing_dim,) or shape[1:-1] not in {(), (gate.num_gates,)}:
        raise ValueError(
            f"Routing inputs must have the shape (batch, {gate.routing_dim}), as when "
            f"the gate was built. Received: {shape}."
        )
    if examples is None:
        examples = x
    elif not hasattr(examples, "shape"):
        raise ValueError(f"`examples` must be a tensor. Received: {shown(examples)}.")
    else:
        # With an axis for the gates, if they have more than one for their features.
        axes = min(len(shape), len(examples.shape)) - 1
        examples = ops.reshape(examples, (*ops.shape(examples)[:axes], -1))
    return inputs._replace(routing_inputs=x, examples=examples)


def check_built(gate: Any) -> None:
    """Raise an error if a gate has no weights yet."""
    if not gate.built:
        raise ValueError(
            f"The gate {gate.name!r} has no weights yet. Call it on experts first, or "
            "call `build`."
        )


def as_arguments(inputs: Any, routing_inputs: Tensor = None) -> tuple:
    """List the two arguments of a gate, or of a layer with one, but not `None`.

    As in the original release, the first argument may be a tuple of both.
    """
    if isinstance(inputs, tuple):
        if len(inputs) != 2 or routing_inputs is not None:
            raise ValueError(
                "A tuple stands for two arguments: (experts, routing_inputs) of a "
                "gate, (inputs, routing_inputs) of a layer with a gate. Received: "
                f"a tuple of {len(inputs)}"
                f"{'' if routing_inputs is None else ' and also routing inputs'}. "
                "Pass experts as a list or as one tensor."
            )
        inputs, routing_inputs = inputs
    return (inputs,) if routing_inputs is None else (inputs, routing_inputs)


def check_is_shape(name: str, shape: Any) -> None:
    """Raise an error for a number of experts or features in place of a shape."""
    if isinstance(shape, (int, dict)):
        raise ValueError(
            f"`{name}` must be a shape, such as (None, 4) for four experts or "
            f"features. Received: {name}={shown(shape)}."
        )


def check_enough_experts(gate: Any) -> None:
    """Raise an error if a gate chooses more experts than there are."""
    n, k = gate.num_experts, gate.num_nonzeros
    if k > n:
        raise ValueError(
            f"`num_nonzeros` must not exceed the {n} experts. Received: "
            f"num_nonzeros={k}."
        )


def count_experts(shape: Any) -> int:
    """The number of experts in the shape of their outputs, or in a list of shapes."""
    if shape and not isinstance(shape[0], (list, tuple)):
        if len(shape) < 2 or shape[1] is None:
            raise ValueError(
                "Experts in one tensor must have the shape (batch, num_experts, ...) "
                f"with num_experts known. Received: {tuple(shape)}. Pass a list of "
                "tensors, or stack them on axis 1."
            )
        return shape[1]
    # Keras passes None for the shapes of an empty list.
    shapes = [tuple(each) for each in shape or []]
    if len(set(shapes)) != 1:
        raise ValueError(
            "A gate needs at least one expert, and outputs all of the same shape. "
            f"Received shapes: {', '.join(map(str, shapes)) or 'none'}. Give the "
            "experts the same number of units."
        )
    return len(shapes)


def count_features(shape: Any, num_gates: int | None) -> int:
    """The number of features in the shape of the routing inputs; 1 for ids."""
    shape = tuple(shape)
    if len(shape) == 1:
        return 1
    rank = len(shape)
    if (
        rank not in ({2} if num_gates is None else {2, 3})
        or not shape[-1]
        or isinstance(shape[-1], (list, tuple))
    ):
        raise ValueError(
            "Routing inputs must be one tensor of shape (batch, features) "
            f"with features known. Received: {shape}. Flatten or pool them first. "
            "`MoE` and `MMoE` have an argument for that, such as "
            "routing_network=keras.layers.GlobalAveragePooling1D(). In a call, experts "
            "come first, gate(experts, routing_inputs)."
        )
    if rank == 3 and shape[1] != num_gates:
        raise ValueError(
            f"{num_gates} gates need routing inputs of shape (batch, {num_gates}, "
            f"features), or (batch, features) for all gates. Received: {shape}."
        )
    return shape[-1]
