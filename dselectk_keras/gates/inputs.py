"""The inputs of a gate: how they are given, and their shapes."""

from typing import Any

from keras import ops

from dselectk_keras.utils import Tensor


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


def check_experts(experts: Any, routing_inputs: Tensor = None) -> None:
    """Raise an error unless these may be outputs of experts, for the same examples."""
    is_list = isinstance(experts, list)
    shape = getattr(experts[0] if is_list and experts else experts, "shape", None)
    if shape is None:
        return
    if not is_list and len(shape) < 3:
        raise ValueError(
            "Experts in one tensor must have the shape (batch, num_experts, ...), with "
            "an axis for their outputs, but (batch, features) is the output of one "
            f"expert. Received: experts of shape {tuple(shape)}. Pass a list of the "
            "experts' outputs, gate([first, second]), not a tuple; for scalar outputs, "
            "keras.ops.expand_dims(experts, -1)."
        )
    sizes = {shape[0], *getattr(routing_inputs, "shape", shape)[:1]}
    if len(sizes - {None}) > 1 and all(isinstance(size, int) for size in sizes):
        raise ValueError(
            "Experts and routing inputs must have the same number of examples. "
            f"Received: experts of shape {tuple(shape)} and routing inputs of shape "
            f"{tuple(routing_inputs.shape)}. Stack the experts on axis 1, (batch, "
            "num_experts, ...), or pass them as a list."
        )


def by_features(examples: Tensor, routing_inputs: Tensor) -> Tensor:
    """Flatten the examples to the rank of the routing inputs."""
    leading = ops.shape(examples)[: len(routing_inputs.shape) - 1]
    return ops.reshape(examples, (*leading, -1))


def count_experts(shape: Any) -> int:
    """The number of experts in the shape of their outputs, or in a list of shapes."""
    shape = shape or []  # Keras passes None for the shapes of an empty list.
    if not shape or not all(map(_is_size, shape)):
        check_same_shape(shape)
        return len(shape)
    if len(shape) < 2 or shape[1] is None:
        raise ValueError(
            "Experts in one tensor must have the shape (batch, num_experts, ...) with "
            f"num_experts known. Received: {tuple(shape)}. Pass a list of tensors, or "
            "stack them on axis 1."
        )
    return shape[1]


def check_same_shape(shapes: Any) -> None:
    """Raise an error unless there are outputs of experts, all of the same shape."""
    shapes = [tuple(shape) for shape in shapes]
    if not shapes or len(set(shapes)) > 1:
        raise ValueError(
            "A gate needs at least one expert, and outputs all of the same shape. "
            f"Received shapes: {', '.join(map(str, shapes)) or 'none'}. Give the "
            "experts the same number of units."
        )


def count_features(shape: Any, num_gates: int | None) -> int:
    """The number of features in the shape of the routing inputs; 1 for ids."""
    shape = tuple(shape)
    if len(shape) == 1:
        return 1
    rank = len(shape) if all(map(_is_size, shape)) else 0
    if rank not in ({2} if num_gates is None else {2, 3}) or not shape[-1]:
        raise ValueError(
            "Routing inputs must be one tensor of shape (batch, features) "
            f"with features known. Received: {shape}. Flatten or pool them first. "
            "`MoE` and `MMoE` have an argument for that, such as "
            "routing_network=keras.layers.GlobalAveragePooling1D()."
        )
    if rank == 3 and shape[1] != num_gates:
        raise ValueError(
            f"{num_gates} gates need routing inputs of shape (batch, {num_gates}, "
            f"features), or (batch, features) for all gates. Received: {shape}."
        )
    return shape[-1]


def _is_size(value):
    return value is None or isinstance(value, int)
