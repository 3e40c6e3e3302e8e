"""The base class of layers with experts and a gate."""

import abc
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import (
    all_layers,
    mask_of,
    note_sharing,
    prefix_paths,
    with_mask,
)
from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates.inputs import RouterInputs, as_arguments
from dselectk_keras.layers.arguments import as_bank, check_gate
from dselectk_keras.layers.padding import Padding, positions
from dselectk_keras.utils import (
    CalledOnce,
    Configured,
    Shape,
    Tensor,
    check_choice,
    check_shape,
    check_type,
    infer_outputs,
    with_name,
)

# The value of `per_example` with which each gate has its own routing inputs.
BY_GATE = "by_gate"
NO_PADDING = Padding()


class GatedExperts(CalledOnce, Configured, keras.Layer, abc.ABC):
    r"""Base class of layers that combine a bank of experts with a gate.

    A per-example gate chooses experts for each position of the leading axes of its
    routing inputs, with which the inputs begin too (see `MoE`). The experts and the
    gate see these positions as one batch. A subclass implements `combine`.
    """

    default_name: str
    # The number of leading axes whose positions are routed; known once it is built.
    num_routed_axes = 1
    # Whether, without `routing_network`, the gate gets the mean over the inner axes.
    averages_inputs = False

    def __init__(
        self,
        experts: Any,
        gate: Any,
        per_example: bool | str = False,
        routing_network: Any = None,
        /,  # Keras refuses it by name in layers that have none.
        **kwargs: Any,
    ):
        super().__init__(**with_name(kwargs, self.default_name))
        check_choice("per_example", per_example, (True, False, BY_GATE))
        layers = keras.Layer, type(None)
        check_type("routing_network", routing_network, layers, "a Keras layer or model")
        if routing_network is not None and not per_example:
            raise ValueError(
                "`routing_network` computes the inputs of a per-example gate, and this "
                f"gate is static. Received: routing_network={routing_network!r}. Set "
                "per_example=True."
            )
        if check_gate(gate).per_example_only and not per_example:
            raise ValueError(
                f"{type(gate).__name__} is per-example: it cannot be static. "
                "Received: per_example=False. Set per_example=True. If the gate needs "
                "ids or tags, call the layer as layer(inputs, routing_inputs)."
            )
        self.experts = as_bank(experts)
        self.gate = gate
        self.per_example = per_example
        self.routing_network: Any = routing_network
        self.supports_masking = True

    def __call__(self, inputs: Any, routing_inputs: Any = None, **kwargs: Any) -> Any:
        return super().__call__(*as_arguments(inputs, routing_inputs), **kwargs)

    def build(self, inputs_shape: Any, routing_inputs_shape: Any = None) -> None:
        check_shape("inputs_shape", inputs_shape)
        shape = None
        if self.per_example:
            if routing_inputs_shape is None:
                routing_inputs_shape = inputs_shape
            check_shape("routing_inputs_shape", routing_inputs_shape)
            shape = self.built_routing_shape(routing_inputs_shape)
            self.num_routed_axes = self._count_routed_axes(inputs_shape, shape)
            shape = self.flatten_shape(shape)
        self.build_parts(self.flatten_shape(inputs_shape), shape)
        prefix_paths(self, self.path)
        if not self.trainable:  # As an argument, Keras does not pass it on.
            for part in all_layers(self)[1:]:
                part.trainable = False
        self.built = True

    def build_parts(self, inputs_shape: Shape, routing_shape: Shape | None) -> None:
        """Build the experts and the gate, for one axis of all routed positions."""
        self.build_bank(self.experts, inputs_shape)
        self.gate.build_for((None, self.experts.num_experts), routing_shape)

    def built_routing_shape(self, shape: Any) -> Shape:
        """Build the routing network, and return the shape of the gate's inputs."""
        network = self.routing_network
        if network is not None:
            if not network.built:
                network.build(shape)
            return tuple(network.compute_output_spec(keras.KerasTensor(shape)).shape)
        if self._averages(shape):
            return (shape[0], *shape[-self._own_axes :])
        return shape

    @property
    def _own_axes(self):
        """The number of last axes that a position of the routing inputs has."""
        return 2 if self.per_example == BY_GATE else 1

    def _averages(self, shape):
        """Check whether the gate gets means over axes between batch and features."""
        return self.averages_inputs and len(shape) > 1 + self._own_axes

    def _count_routed_axes(self, inputs, routing):
        """Count the leading axes that are routed."""
        axes = max(len(routing) - self._own_axes, 1)
        pairs = zip(inputs[:axes], routing[:axes], strict=False)
        if axes > 1 and (
            len(inputs) <= axes or any(len({*pair, None}) > 2 for pair in pairs)
        ):
            raise ValueError(
                "Experts are chosen for each position of the leading axes of the "
                "routing inputs, so that the inputs must begin with the same axes. "
                f"Received: inputs {tuple(inputs)} and routing inputs "
                f"{tuple(routing)}. To choose experts once per example, pool or "
                "flatten the routing inputs to (batch, features), for example with "
                "routing_network=keras.layers.GlobalAveragePooling1D(). If each gate "
                'has its own routing inputs, set per_example="by_gate".'
            )
        return axes

    def build_bank(self, bank: Any, shape: Shape) -> None:
        """Build a bank for inputs with one axis for all routed positions."""
        if bank.built:
            return
        try:
            bank.build(shape)
        except ValueError as error:
            if self.num_routed_axes == 1:
                raise
            raise ValueError(
                f"The experts cannot be applied to single positions, {shape}, which is "
                f"how routing inputs with {self.num_routed_axes} leading axes choose "
                "them. To choose experts once per example, pool or flatten the routing "
                "inputs to (batch, features), for example with "
                "routing_network=keras.layers.GlobalAveragePooling"
                f"{self.num_routed_axes - 1}D()."
            ) from error

    def call(
        self,
        inputs: Tensor,
        routing_inputs: Tensor = None,
        training: bool | None = None,
        mask: Tensor = None,
        inputs_mask: Tensor = None,
        routing_inputs_mask: Tensor = None,
    ) -> Any:
        # Keras passes the first mask if there is one tensor, and else the others.
        masks = inputs_mask if mask is None else mask, routing_inputs_mask
        tensors = inputs, routing_inputs
        flat, router_inputs = self._flattened_inputs(*tensors, *masks, training)
        combined = self.combine(flat, router_inputs, training)
        return self.arrange(self.unflatten(combined, inputs))

    def _flattened_inputs(self, inputs, routing_inputs, mask, routing_mask, training):
        """Compute the inputs of the experts and of the gate, with zeros as padding."""
        paddings = Padding(mask), Padding(routing_mask)
        if mask is not None and len(mask.shape) <= self.num_routed_axes:
            # What does not count in the inputs has no routing inputs that do.
            paddings = paddings[0], paddings[1].together(mask)
        inputs = paddings[0].clear(inputs)
        if routing_inputs is not None:
            routing_inputs = paddings[1].clear(routing_inputs)
        router_inputs = self.gate_inputs(inputs, routing_inputs, *paddings, training)
        flat = self.flatten(inputs)
        valid = router_inputs.valid
        if valid is not None and not isinstance(self.experts, DenseExperts):
            # Layers such as `BatchNormalization` leave padding out.
            flat = with_mask(flat, valid)
        return flat, router_inputs

    @abc.abstractmethod
    def combine(
        self, inputs: Tensor, router_inputs: RouterInputs, training: bool | None
    ) -> Tensor:
        """Evaluate the experts and combine them.

        Args:
            inputs: The inputs of the experts, with one axis for all routed positions.
            router_inputs: The inputs of the gate, the result of `gate_inputs`.
            training: Passed on to the experts and the gate.
        """

    def arrange(self, combined: Tensor) -> Any:
        """Make the outputs of the layer from those of `combine`."""
        return combined

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return infer_outputs(self, args, kwargs)

    def compute_output_shape(self, inputs_shape: Any) -> Any:
        """Compute the shapes of the outputs, for which `TimeDistributed` asks."""
        specs = self.compute_output_spec(keras.KerasTensor(inputs_shape))
        return keras.tree.map_structure(lambda spec: spec.shape, specs)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor = None) -> Tensor:
        """Pass the mask on, if the outputs have a value for each of its positions."""
        if previous_mask is None:
            return None
        if self.num_routed_axes > 1:
            # As Keras' layers expect it, also of a mask of examples.
            return positions(previous_mask, ops.shape(inputs)[: self.num_routed_axes])
        fits = isinstance(self.experts, DenseExperts) and not self.has_gate_axis
        return previous_mask if fits else None

    @property
    def has_gate_axis(self) -> bool:
        """True if the outputs have an axis for the gates."""
        return self.gate.num_gates is not None

    def flatten(self, tensor: Tensor) -> Tensor:
        """Make one axis of the axes that are routed."""
        if self.num_routed_axes == 1:
            return tensor
        return ops.reshape(tensor, (-1, *ops.shape(tensor)[self.num_routed_axes :]))

    def flatten_shape(self, shape: Shape) -> Shape:
        """Compute the shape of what `flatten` returns."""
        axes = self.num_routed_axes
        return shape if axes == 1 else (None, *shape[axes:])

    def unflatten(self, tensor: Tensor, inputs: Tensor) -> Tensor:
        """Restore the axes that `flatten` has made one."""
        if self.num_routed_axes == 1:
            return tensor
        leading = ops.shape(inputs)[: self.num_routed_axes]
        return ops.reshape(tensor, (*leading, *ops.shape(tensor)[1:]))

    def gate_inputs(
        self,
        inputs: Tensor,
        routing_inputs: Tensor = None,
        padding: Padding = NO_PADDING,
        routing_padding: Padding = NO_PADDING,
        training: bool | None = None,
    ) -> RouterInputs:
        """Compute the inputs of the gate; the padding is that of the inputs."""
        if not self.per_example:
            if routing_inputs is not None:
                raise ValueError(
                    f"{self.name!r} has per_example=False and takes no routing inputs. "
                    "Received: routing inputs. Set per_example=True, or leave them out."
                )
            return RouterInputs()
        x, x_padding = routing_inputs, routing_padding
        if routing_inputs is None:
            x, x_padding = inputs, padding
        examples = None
        if self.routing_network is not None:
            x, examples = self.routing_network(x, training=training), x
        elif self._averages(x.shape):
            x = x_padding.mean(x, self._own_axes)
        counted = x_padding if padding.mask is None else padding
        found = x, examples, counted.valid(ops.shape(inputs)[: self.num_routed_axes])
        return RouterInputs(*(y if y is None else self.flatten(y) for y in found))

    def expert_weights(
        self, inputs: Tensor = None, routing_inputs: Tensor = None
    ) -> Tensor:
        """Compute the weights of the experts, as at inference.

        Args:
            inputs: The inputs of the layer. A per-example gate needs them.
            routing_inputs: The routing inputs of the layer, if any.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`, or `(batch, length,
            [num_gates,] n)` if each position of a sequence is routed.
        """
        if not self.per_example:
            return self.gate.expert_weights()
        if inputs is None:
            raise ValueError(
                f"The gate of {self.name!r} is per-example: pass the inputs of the "
                "layer, and its routing inputs, if any. Received: inputs=None."
            )
        inputs, *rest = as_arguments(inputs, routing_inputs)
        masks = [mask_of(each) for each in (inputs, *(rest or [None]))]
        inputs, *rest = map(ops.convert_to_tensor, (inputs, *rest))
        tensors = inputs, *(rest or [None])
        flat = self._flattened_inputs(*tensors, *masks, training=False)
        weights = self.inference_weights(*flat)
        return self.unflatten(weights, inputs)

    def inference_weights(self, inputs: Tensor, router_inputs: RouterInputs) -> Tensor:
        """Compute the weights at inference; the arguments are those of `combine`."""
        return self.gate.expert_weights(router_inputs)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name, serialized in config.items():
            part = getattr(self, name, None)
            if isinstance(part, keras.Layer):
                # Other layers may have the same bank, gate or network.
                note_sharing(part, serialized)
        return config
