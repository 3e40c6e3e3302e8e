"""The attentive gate."""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from dselectk_keras.gates.dropout import drop_logits
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits, float32_weight
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.initializers import clone_initializer, stacked_initializer
from dselectk_keras.ops import softmax
from dselectk_keras.utils import Initializer, Tensor, check_count, get_from


class AttentiveInputs(NamedTuple):
    """The `RouterInputs` of an `AttentiveGate`.

    Args:
        routing_inputs, examples, valid: See `RouterInputs`.
        hidden: The experts' hidden outputs, `(batch, n, ...)`.
    """

    routing_inputs: Tensor = None
    examples: Tensor = None
    valid: Tensor = None
    hidden: Tensor = None


@GATES.register("attentive")
class AttentiveGate(Gate):
    r"""Dense weights from attention of the gate to the experts' hidden outputs.

    $$
    g(x) = \mathrm{softmax}\Bigl(\frac{Q K^\top}{\sqrt h}\Bigr), \qquad
    Q = G(x) \, W_q, \quad K_i = E_i(x) \, W_k
    $$

    $G(x)$ are the routing inputs, and $E_i(x)$ is the hidden output of expert $i$.
    `AttentiveMoE` evaluates all experts, and hands their hidden outputs to the gate.

    Args:
        units: Width of queries and keys, $h$.
        kernel_initializer: Initializer of the kernels of queries and keys.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        hidden: The experts' hidden outputs, `(batch, n, ...)`.
        experts, routing_inputs, training, examples, valid: See `Gate`.

    Example:
        >>> x, hidden = keras.ops.ones((3, 5)), keras.ops.ones((3, 4, 16))
        >>> experts = DenseExperts(4, [2], shared_input=False)(hidden)
        >>> AttentiveGate(units=8)(experts, x, hidden=hidden).shape
        (3, 2)

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization in Mixture of
        Experts", Section 5, Equations 4 to 6.
    """

    per_example_only = True

    def __init__(
        self,
        units: int = 32,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.units = check_count("units", units)
        self.kernel_initializer = get_from(
            keras.initializers, "kernel_initializer", kernel_initializer
        )
        self.hidden_dim: Any = None
        self.weight_dropout = 0.0

    def build(
        self,
        experts_shape: Any = None,
        routing_inputs_shape: Any = None,
        hidden_shape: Any = None,
    ):
        shape: Any = (hidden_shape or [None])[1:]
        if len(shape) < 2 or None in shape:
            raise ValueError(
                "An attentive gate needs the experts' hidden outputs, (batch, "
                "num_experts, ...). Use the layer `AttentiveMoE`, or call the gate as "
                "gate(experts, routing_inputs, hidden=hidden). "
                f"Received for hidden: {hidden_shape and tuple(hidden_shape)}."
            )
        self.hidden_dim = math.prod(shape[1:])
        super().build(experts_shape, routing_inputs_shape)

    def call(
        self,
        experts: Any,
        routing_inputs: Tensor = None,
        training: bool | None = None,
        examples: Tensor = None,
        valid: Tensor = None,
        hidden: Tensor = None,
    ) -> Tensor:
        inputs = AttentiveInputs(routing_inputs, examples, valid, hidden)
        return self.mixture(experts, inputs, training)

    def build_logits(self) -> None:
        initializer = self.kernel_initializer
        self._query = Logits(
            self, "query", (*self.gate_shape, self.units), initializer, use_bias=False
        )
        shape = (self.num_gates or 1, self.hidden_dim, self.units)
        stacked = stacked_initializer(
            clone_initializer(initializer, self.num_gates or 1)
        )
        self._key = float32_weight(self, "key_kernel", shape, stacked)

    def compute_weights(self, inputs, training, step) -> Routing:
        hidden = getattr(inputs, "hidden", None)
        shape = () if hidden is None else tuple(ops.convert_to_tensor(hidden).shape)
        if len(shape) < 3 or shape[1] != self.num_experts:
            raise ValueError(
                f"`hidden` must have the shape (batch, {self.num_experts}, ...), with "
                f"one hidden output for each expert. Received: {shape or None}."
            )
        hidden = ops.cast(ops.convert_to_tensor(hidden), "float32")
        hidden = ops.reshape(hidden, (-1, self.num_experts, self.hidden_dim))
        query = self._query(inputs.routing_inputs)
        if self.num_gates is None:
            query = ops.expand_dims(query, 1)
        # (Q W_k') E' costs less than Q (E W_k)': it forms no key for each expert.
        query = ops.einsum("bgh,geh->bge", query, self._key)
        logits = ops.einsum("bge,bne->bgn", query, hidden)
        if self.num_gates is None:
            logits = logits[:, 0]
        logits = logits / math.sqrt(self.units)
        rate = self.expert_dropout if training else 0.0
        return Routing(softmax(drop_logits(logits, rate, self.generator)))
