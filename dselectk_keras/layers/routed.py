"""What every layer of a bank and a gate is."""

import abc

import keras
from keras import ops

from dselectk_keras.experts import ExpertBank, Experts
from dselectk_keras.gates import Gate
from dselectk_keras.gates.gate import split_pair
from dselectk_keras.utils import deserialize_if_config, with_name


class RoutedExperts(keras.Layer, abc.ABC):
    r"""A bank of experts and a gate; a subclass says how they are combined.

    Args:
        experts: A bank of experts, or a list of Keras layers.
        gate: A gate that is not built yet.
        per_example: Whether the weights depend on the inputs.
        routing: A Keras layer between the inputs and the gate: what a per-example
            gate looks at is what this layer makes of them.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.
    """

    default_name: str
    # Whether a gate without `routing` looks at the mean over inner axes.
    averages_inputs = False

    def __init__(self, experts, gate, per_example=False, routing=None, **kwargs):
        super().__init__(**with_name(kwargs, self.default_name))
        experts, gate, routing = (
            deserialize_if_config(experts),
            deserialize_if_config(gate),
            deserialize_if_config(routing),
        )
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
        if routing is not None and not per_example:
            raise ValueError(
                "`routing` makes what a per-example gate looks at, and this one is "
                f"static. Received: routing={routing!r}. Set per_example=True."
            )
        if gate.per_example_only and not (per_example or gate.sees_hidden):
            raise ValueError(
                f"{type(gate).__name__} is per-example: there is no static one. "
                "Received: per_example=False. Set per_example=True, and call the layer "
                "on (inputs, routing_inputs) where the gate looks at an id or a tag."
            )
        if gate.sees_hidden and not (per_example and experts.has_hidden):
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
        self.routing = routing

    def build(self, input_shape):
        """Build the experts and the gate."""
        inputs, routing = self._split(input_shape)
        if not self.experts.built:
            self.experts.build(inputs)
        shape = self.experts_shape(inputs)
        if self.per_example:
            if self.routing is not None:
                if not self.routing.built:
                    self.routing.build(routing)
                routing = _output_shapes(self.routing, routing)
            elif self.averages_inputs and len(routing) > 2:
                routing = (routing[0], routing[-1])
            if self.gate.sees_hidden:
                _, hidden = _output_shapes(self.experts, inputs, return_hidden=True)
                routing = (routing, hidden)
            shape = (shape, routing)
        if not self.gate.built:
            self.gate.build(shape)
        self.built = True

    def experts_shape(self, input_shape):
        """The shape of what the gate weighs, as far as the gate has to know it."""
        return (None, self.experts.num_experts)

    @abc.abstractmethod
    def call(self, inputs, training=None):
        """Evaluate the experts and combine them."""

    def replace(self, experts, gate):
        """Put another bank and another gate, both built, in the place of these.

        Models that have been compiled have to make their functions anew.

        Args:
            experts: A bank.
            gate: A gate.
        """
        # A layer that is built refuses changes of its parts, as a rule with reason.
        tracker = self._tracker
        tracker.unlock()
        for name, part in (("experts", experts), ("gate", gate)):
            if part is not getattr(self, name):
                tracker.untrack(getattr(self, name))
                setattr(self, name, part)
        tracker.lock()

    def expert_weights(self, inputs=None):
        """The weights over the experts, as at inference.

        Args:
            inputs: What the layer is called on; needed if the gate is per-example.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`.
        """
        if not self.per_example:
            return self.gate.expert_weights()
        if inputs is None:
            raise ValueError(
                f"The gate of {self.name!r} is per-example: pass the inputs, or "
                "(inputs, routing_inputs), to see the weights for them."
            )
        return self.gate.expert_weights(self.routing_inputs(inputs))

    def routing_inputs(self, inputs):
        """What a per-example gate looks at when the layer is called on `inputs`."""
        inputs, routing = self._split(inputs)
        routing = self.routed(routing)
        if self.gate.sees_hidden:
            return routing, self.experts(inputs, return_hidden=True)[1]
        return routing

    def routed(self, inputs):
        """What the layer `routing` makes of the inputs, for the gate."""
        if self.routing is not None:
            return self.routing(inputs)
        if self.averages_inputs and len(inputs.shape) > 2:
            return ops.mean(inputs, axis=list(range(1, len(inputs.shape) - 1)))
        return inputs

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "experts": keras.saving.serialize_keras_object(self.experts),
            "gate": keras.saving.serialize_keras_object(self.gate),
            "per_example": self.per_example,
            "routing": self.routing
            and keras.saving.serialize_keras_object(self.routing),
        }

    def _split(self, inputs):
        if self.per_example and isinstance(inputs, list) and len(inputs) == 2:
            # A model that is loaded from a file has lists where it had tuples. A
            # list of two numbers is a shape.
            inputs = inputs if isinstance(inputs[1], int) else tuple(inputs)
        inputs, routing_inputs = split_pair(inputs)
        if not self.per_example and routing_inputs is not None:
            raise ValueError(
                f"{self.name!r} has per_example=False and takes no routing inputs. "
                "Received: a tuple of two. Set per_example=True, or pass the inputs "
                "alone."
            )
        return inputs, inputs if routing_inputs is None else routing_inputs


def _output_shapes(layer, input_shape, **kwargs):
    """The shape, or shapes, of what a layer gives for an input of this shape."""
    spec = layer.compute_output_spec(keras.KerasTensor(input_shape), **kwargs)
    if isinstance(spec, (list, tuple)):
        return tuple(tuple(each.shape) for each in spec)
    return tuple(spec.shape)
