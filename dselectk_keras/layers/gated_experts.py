"""The base class of layers with experts and a gate."""

import abc
import functools
import inspect
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import replace_sublayers
from dselectk_keras.gates import Gate
from dselectk_keras.gates.gate import as_arguments
from dselectk_keras.layers._arguments import as_bank
from dselectk_keras.utils import (
    Shape,
    Tensor,
    deserialize_if_config,
    init_arguments,
    with_name,
)


class GatedExperts(keras.Layer, abc.ABC):
    r"""Base class of layers that combine a bank of experts with a gate.

    A subclass implements `call`.
    """

    default_name: str
    # Whether, without `routing_network`, the gate gets the mean over the inner axes.
    averages_inputs = False

    def __init__(
        self,
        experts: Any,
        gate: Any,
        per_example: bool = False,
        routing_network: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**with_name(kwargs, self.default_name))
        experts, gate = as_bank(experts), deserialize_if_config(gate)
        if not isinstance(gate, Gate):
            raise ValueError(
                "`gate` must be a gate, such as `DSelectKGate(num_nonzeros=2)`. "
                f"Received: {gate!r}."
            )
        if routing_network is not None and not per_example:
            raise ValueError(
                "`routing_network` computes the inputs of a per-example gate, and this "
                f"gate is static. Received: routing_network={routing_network!r}. Set "
                "per_example=True."
            )
        if gate.per_example_only and not (per_example or takes_hidden(gate)):
            raise ValueError(
                f"{type(gate).__name__} is per-example: it cannot be static. "
                "Received: per_example=False. Set per_example=True. If the gate needs "
                "ids or tags, call the layer as layer(inputs, routing_inputs)."
            )
        if takes_hidden(gate) and not (per_example and experts.has_hidden):
            raise ValueError(
                f"{type(gate).__name__} compares the inputs with the experts' hidden "
                "outputs. It needs per_example=True, and experts with hidden outputs "
                "(`DenseExperts` of two layers or more, or `Experts` with "
                f"`hidden_layer`). Received: per_example={per_example} and a bank "
                f"{'with' if experts.has_hidden else 'without'} hidden outputs."
            )
        self.experts = experts
        self.gate = gate
        self.per_example = per_example
        self.routing_network = deserialize_if_config(routing_network)

    def __call__(self, inputs: Any, routing_inputs: Any = None, **kwargs: Any) -> Any:
        """Evaluate the experts and combine them; see the class."""
        return super().__call__(*as_arguments(inputs, routing_inputs), **kwargs)

    def build(self, inputs_shape: Any, routing_inputs_shape: Any = None) -> None:
        """Build the experts and the gate."""
        if not self.experts.built:
            self.experts.build(inputs_shape)
        shapes = {}
        if self.per_example:
            shape = self.built_routing_shape(routing_inputs_shape or inputs_shape)
            shapes["routing_inputs_shape"] = shape
        if takes_hidden(self.gate):
            outputs = self.experts.compute_output_spec(
                keras.KerasTensor(inputs_shape), return_hidden=True
            )
            shapes["hidden_shape"] = tuple(outputs[1].shape)
        if not self.gate.built:
            self.gate.build((None, self.experts.num_experts), **shapes)
        self.built = True

    def built_routing_shape(self, shape: Any) -> Shape:
        """Build the routing network, and return the shape of the gate's inputs."""
        network = self.routing_network
        if network is not None:
            if not network.built:
                network.build(shape)
            return tuple(network.compute_output_spec(keras.KerasTensor(shape)).shape)
        if self.averages_inputs and len(shape) > 2:
            return (shape[0], shape[-1])
        return shape

    @abc.abstractmethod
    def call(
        self,
        inputs: Tensor,
        routing_inputs: Tensor = None,
        training: bool | None = None,
    ) -> Any:
        """Evaluate the experts and combine them."""

    def gate_inputs(
        self, inputs: Tensor, routing_inputs: Tensor = None
    ) -> dict[str, Tensor]:
        """Compute the call arguments of the gate, other than the experts' outputs."""
        if not self.per_example:
            if routing_inputs is not None:
                raise ValueError(
                    f"{self.name!r} has per_example=False and takes no routing inputs. "
                    "Received: routing inputs. Set per_example=True, or leave them out."
                )
            return {}
        x = inputs if routing_inputs is None else routing_inputs
        if self.routing_network is not None:
            return {"routing_inputs": self.apply_routing_network(x), "examples": x}
        if self.averages_inputs and len(x.shape) > 2:
            x = ops.mean(x, axis=list(range(1, len(x.shape) - 1)))
        return {"routing_inputs": x}

    def apply_routing_network(self, inputs: Tensor) -> Tensor:
        """Call the routing network on the inputs."""
        return self.routing_network(inputs)

    def expert_weights(
        self, inputs: Tensor = None, routing_inputs: Tensor = None
    ) -> Tensor:
        """Compute the weights of the experts, as at inference.

        Args:
            inputs: The inputs of the layer. A per-example gate needs them.
            routing_inputs: The routing inputs of the layer, if any.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`.
        """
        if not self.per_example:
            return self.gate.expert_weights()
        if inputs is None:
            raise ValueError(
                f"The gate of {self.name!r} is per-example: pass the inputs of the "
                "layer, and its routing inputs, if any. Received: inputs=None."
            )
        inputs, *rest = as_arguments(inputs, routing_inputs)
        seen = self.gate_inputs(inputs, *rest)
        seen.pop("examples", None)
        if takes_hidden(self.gate):
            _, seen["hidden"] = self.experts(inputs, return_hidden=True)
        return self.gate.expert_weights(**seen)

    def replace(self, experts: Any, gate: Any) -> None:
        """Replace the bank and the gate by others that are built.

        Afterwards, a compiled model must create its train and test functions again.
        """
        replace_sublayers(self, experts=experts, gate=gate)

    def get_config(self) -> dict[str, Any]:
        """The arguments of `__init__`."""
        return {**super().get_config(), **init_arguments(self)}


def takes_hidden(gate: Gate | type[Gate]) -> bool:
    """Check whether the experts' hidden outputs are a call argument of a gate."""
    return "hidden" in _call_arguments(gate if isinstance(gate, type) else type(gate))


@functools.cache
def _call_arguments(cls):
    """The names of the call arguments of a class; every eager call asks for them."""
    return inspect.signature(cls.call).parameters.keys()
