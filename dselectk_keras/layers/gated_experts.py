"""What every layer of a bank and a gate is."""

import abc
import inspect

import keras
from keras import ops

from dselectk_keras._keras import replace_sublayers
from dselectk_keras.experts import ExpertBank, Experts
from dselectk_keras.gates import Gate
from dselectk_keras.gates.gate import as_arguments
from dselectk_keras.utils import deserialize_if_config, with_name


class GatedExperts(keras.Layer, abc.ABC):
    r"""A bank of experts and a gate; a subclass says how they are combined.

    Args:
        experts: A bank of experts, or a list of Keras layers.
        gate: A gate that is not built yet.
        per_example: Whether the weights depend on the inputs.
        routing_network: A Keras layer between the inputs and the gate: a per-example
            gate looks at the outputs of this layer.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.
    """

    default_name: str
    # Whether a gate without `routing_network` looks at the mean over inner axes.
    averages_inputs = False

    def __init__(
        self, experts, gate, per_example=False, routing_network=None, **kwargs
    ):
        super().__init__(**with_name(kwargs, self.default_name))
        experts, gate = deserialize_if_config(experts), deserialize_if_config(gate)
        if isinstance(experts, (list, tuple)):
            experts = Experts([deserialize_if_config(expert) for expert in experts])
        if not isinstance(experts, ExpertBank):
            raise ValueError(
                "`experts` must be a bank, such as `DenseExperts(8, [64])` or "
                "`Experts(layer, 8)`, or a list of Keras layers. "
                f"Received: {experts!r}."
            )
        if not isinstance(gate, Gate):
            raise ValueError(
                "`gate` must be a gate, such as `DSelectKGate(num_nonzeros=2)`. "
                f"Received: {gate!r}."
            )
        if routing_network is not None and not per_example:
            raise ValueError(
                "`routing_network` computes what a per-example gate looks at, and this "
                f"gate is static. Received: routing_network={routing_network!r}. Set "
                "per_example=True."
            )
        if gate.per_example_only and not (per_example or takes_hidden(gate)):
            raise ValueError(
                f"{type(gate).__name__} is per-example: there is no static one. "
                "Received: per_example=False. Set per_example=True, and call the layer "
                "as layer(inputs, routing_inputs) where the gate looks at ids or tags."
            )
        if takes_hidden(gate) and not (per_example and experts.has_hidden):
            raise ValueError(
                f"{type(gate).__name__} compares the inputs with the experts' hidden "
                "outputs: it needs per_example=True, and experts with hidden outputs "
                "(`DenseExperts` of two layers or more, or `Experts` with "
                f"`hidden_layer`). Received: per_example={per_example} and a bank "
                f"{'with' if experts.has_hidden else 'without'} hidden outputs."
            )
        self.experts = experts
        self.gate = gate
        self.per_example = per_example
        self.routing_network = deserialize_if_config(routing_network)

    def __call__(self, inputs, routing_inputs=None, **kwargs):
        """Evaluate the experts and combine them; see the class."""
        return super().__call__(*as_arguments(inputs, routing_inputs), **kwargs)

    def build(self, inputs_shape, routing_inputs_shape=None):
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

    def built_routing_shape(self, shape):
        """Build the routing network; the shape of what the gate looks at."""
        network = self.routing_network
        if network is not None:
            if not network.built:
                network.build(shape)
            return tuple(network.compute_output_spec(keras.KerasTensor(shape)).shape)
        if self.averages_inputs and len(shape) > 2:
            return (shape[0], shape[-1])
        return shape

    @abc.abstractmethod
    def call(self, inputs, routing_inputs=None, training=None):
        """Evaluate the experts and combine them."""

    def gate_inputs(self, inputs, routing_inputs=None):
        """What the gate looks at beside the experts' outputs.

        Args:
            inputs: The experts' inputs.
            routing_inputs: What a per-example gate looks at, if it is not `inputs`.

        Returns:
            A dict of call arguments of the gate.
        """
        if not self.per_example:
            if routing_inputs is not None:
                raise ValueError(
                    f"{self.name!r} has per_example=False and takes no routing inputs. "
                    "Received: routing inputs. Set per_example=True, or leave them out."
                )
            return {}
        x = inputs if routing_inputs is None else routing_inputs
        if self.routing_network is not None:
            x = self.apply_routing_network(x)
        elif self.averages_inputs and len(x.shape) > 2:
            x = ops.mean(x, axis=list(range(1, len(x.shape) - 1)))
        return {"routing_inputs": x}

    def apply_routing_network(self, inputs):
        """What the routing network makes of the inputs."""
        return self.routing_network(inputs)

    def expert_weights(self, inputs=None, routing_inputs=None):
        """The weights over the experts, as at inference.

        Args:
            inputs: What the layer is called on; needed if the gate is per-example.
            routing_inputs: The routing inputs that the layer is called with, if any.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`.
        """
        if not self.per_example:
            return self.gate.expert_weights()
        if inputs is None:
            raise ValueError(
                f"The gate of {self.name!r} is per-example: pass the inputs (and "
                "routing inputs, if the layer is called with them) to see the weights "
                "for them."
            )
        inputs, *rest = as_arguments(inputs, routing_inputs)
        seen = self.gate_inputs(inputs, *rest)
        if takes_hidden(self.gate):
            _, seen["hidden"] = self.experts(inputs, return_hidden=True)
        return self.gate.expert_weights(**seen)

    def replace(self, experts, gate):
        """Replace the bank and the gate by others, both built.

        Models that have been compiled have to make their functions anew.

        Args:
            experts: A bank.
            gate: A gate.
        """
        replace_sublayers(self, experts=experts, gate=gate)

    def get_config(self):
        """The arguments of `__init__`."""
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "experts": serialize(self.experts),
            "gate": serialize(self.gate),
            "per_example": self.per_example,
            "routing_network": serialize(self.routing_network),
        }


def takes_hidden(gate):
    """Whether a gate looks at the experts' hidden outputs: a call argument of it."""
    return "hidden" in inspect.signature(gate.call).parameters
