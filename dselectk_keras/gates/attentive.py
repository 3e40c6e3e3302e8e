"""The attentive gate."""

import math
from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits
from dselectk_keras.initializers import clone_initializer, stacked_initializer
from dselectk_keras.ops import softmax
from dselectk_keras.utils import check_count


@keras.saving.register_keras_serializable(package="dselectk_keras")
class AttentiveGate(Gate):
    r"""Dense weights from attention over what the experts make of the example.

    $$
    g(x) = \mathrm{softmax}\Bigl(\frac{Q K^\top}{\sqrt h}\Bigr), \qquad
    Q = G(x) \, W_q, \quad K_i = E_i(x) \, W_k
    $$

    $G(x)$ is the gate's hidden output, that is the routing inputs (`MoE` has an
    argument `routing` for the network that makes them); $E_i(x)$ is the hidden
    output of expert $i$, so that all experts are evaluated, at inference too.
    `distill` turns the trained model into one that does without.

    Args:
        units: Width of queries and keys, $h$.
        kernel_initializer: For the kernels of queries and keys.
        **kwargs: `num_gates`, `weights_regularizer`, `expert_dropout` and `seed` (see
            `Gate`), and the arguments of `keras.Layer`.

    Call arguments:
        inputs: A tuple of the experts and another tuple: the routing inputs
            `(batch, features)` and the experts' hidden outputs `(batch, n, ...)`.
            `MoE` and `MMoE` put them together.
        training: Whether to add the penalty to the loss.

    Returns:
        The mixture of the experts.

    Example:
        >>> experts = DenseExperts(num_experts=4, units=[16, 2])
        >>> moe = MoE(experts, AttentiveGate(units=8), per_example=True)
        >>> moe(keras.ops.ones((3, 5))).shape
        (3, 2)

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization in Mixture of
        Experts", Section 5.
    """

    per_example_only = True
    sees_hidden = True
    drops_logits = True

    def __init__(self, units=32, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_count("units", units)
        self.units = units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.hidden_dim: Any = None

    def read_routing_shape(self, shape):
        """Check the shapes of the routing inputs and of the hidden outputs.

        Args:
            shape: The pair of the two shapes.
        """
        if len(shape) != 2 or not all(isinstance(each, tuple) for each in shape):
            raise ValueError(
                "An attentive gate is called on (experts, (routing_inputs, hidden)), "
                "with the hidden outputs of a bank called with return_hidden=True. "
                f"Received for the second: {shape}."
            )
        routing, hidden = shape
        super().read_routing_shape(routing)
        if len(hidden) < 3 or hidden[1] != self.num_experts or None in hidden[2:]:
            raise ValueError(
                f"The hidden outputs must have the shape (batch, {self.num_experts}, "
                f"...), one for each expert. Received: {hidden}."
            )
        self.hidden_dim = math.prod(hidden[2:])

    def read_routing_inputs(self, routing_inputs):
        """Check the pair, and flatten the hidden outputs to `(batch, n, features)`.

        Args:
            routing_inputs: The pair.

        Returns:
            A pair of tensors.
        """
        if not isinstance(routing_inputs, (list, tuple)) or len(routing_inputs) != 2:
            raise ValueError(
                "An attentive gate looks at a pair, (routing_inputs, hidden). "
                f"Received: {type(routing_inputs).__name__}."
            )
        routing_inputs, hidden = routing_inputs
        hidden = ops.convert_to_tensor(hidden)
        return (
            super().read_routing_inputs(routing_inputs),
            ops.reshape(hidden, (-1, self.num_experts, self.hidden_dim)),
        )

    def build_logits(self):
        """Create the kernels of queries and keys."""
        if not self.per_example:
            raise ValueError(
                "An attentive gate is per-example. Received: no routing inputs. Call "
                "it on (experts, (routing_inputs, hidden))."
            )
        initializer = self.kernel_initializer
        self._query = Logits(
            self, "query", (*self.gate_shape, self.units), initializer, use_bias=False
        )
        gates = self.num_gates or 1
        self._key = self.add_weight(
            name="key_kernel",
            shape=(gates, self.hidden_dim, self.units),
            initializer=stacked_initializer(clone_initializer(initializer, 1)),
            dtype="float32",
            autocast=False,
        )

    def compute_weights(self, routing_inputs, training) -> tuple[Any, dict]:
        """The softmax of the scaled products of query and keys."""
        routing_inputs, hidden = routing_inputs
        query = self._query(routing_inputs)
        if self.num_gates is None:
            query = ops.expand_dims(query, 1)
        # (Q W_k') E' rather than Q (E W_k)': no key is formed for each expert.
        seen = ops.einsum("bgh,geh->bge", query, self._key)
        logits = ops.einsum("bge,bne->bgn", seen, ops.cast(hidden, "float32"))
        if self.num_gates is None:
            logits = logits[:, 0]
        logits = logits / math.sqrt(self.units)
        return softmax(self.drop_experts(logits, training)), {}

    def inputs_of(self, routing_inputs):
        """What the gate looks at, without the experts' hidden outputs."""
        return routing_inputs[0]

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    def get_build_config(self):
        """What the gate was built for; nothing before that."""
        config = super().get_build_config()
        return config and {**config, "hidden_dim": self.hidden_dim}

    def build_from_config(self, config):
        """Build from `get_build_config`."""
        n = config["num_experts"]
        hidden = (None, n, config["hidden_dim"])
        self.build(((None, n), ((None, config["routing_dim"]), hidden)))
