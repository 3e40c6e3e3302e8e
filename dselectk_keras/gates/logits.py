"""The trainable logits of a gate."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.initializers import (
    DRAW_EACH_NUMBER,
    block_initializer,
    clone_initializer,
    stacked_initializer,
)
from dselectk_keras.utils import Initializer, Shape, Tensor


def float32_weight(
    layer: keras.Layer,
    name: str,
    shape: Shape,
    initializer: Initializer = "zeros",
    trainable: bool = True,
) -> Any:
    """Add a weight in float32, whatever the layer's dtype policy."""
    settings = {"dtype": "float32", "autocast": False, "trainable": trainable}
    return layer.add_weight(name=name, shape=shape, initializer=initializer, **settings)


class Logits:
    """Logits of a given shape in float32: a variable, or a map of the routing inputs.

    With `normalize`, the routing inputs and each column of the kernel are
    layer-normalized, each with a scale and an offset. The scale for the kernel starts
    at 0.01, so that the first weights are nearly equal.

    Args:
        gate: The gate that owns the variables. Without `routing_dim` it is static.
        name: Prefix of the variables' names.
        shape: Shape of the logits without a batch axis; several gates are its first.
        initializer: Initializer of the static logits, or of the kernel and the bias.
            What it draws for each gate is what it would draw for a single gate.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to normalize the routing inputs and the kernel.
        trainable: Whether the variables are trained.
    """

    def __init__(
        self,
        gate: Gate,
        name: str,
        shape: Shape,
        initializer: Initializer,
        use_bias: bool = True,
        normalize: bool = False,
        trainable: bool = True,
    ):
        def variable(suffix, shape, seed_offset=0):
            draw = clone_initializer(initializer, seed_offset)
            own_function = getattr(draw, "__self__", None) is gate
            at_once = own_function or isinstance(draw, DRAW_EACH_NUMBER)
            if gate.num_gates and not at_once:
                static = gate.routing_dim is None
                stacked = stacked_initializer(draw)
                draw = stacked if static else block_initializer(stacked, gate.num_gates)
            return float32_weight(gate, f"{name}_{suffix}", shape, draw, trainable)

        self.shape = shape
        self.static = self.kernel = self.bias = None
        if gate.routing_dim is None:
            self.static = variable("logits", shape)
        else:
            size = math.prod(shape)
            self.kernel = variable("kernel", (gate.routing_dim, size))
            seed_offset = gate.num_gates or 1
            self.bias = variable("bias", (size,), seed_offset) if use_bias else None
        self.norms = (
            [_Norm(gate, f"{name}_inputs", 1.0), _Norm(gate, f"{name}_kernel", 0.01)]
            if normalize and self.kernel is not None
            else None
        )

    def __call__(self, routing_inputs: Tensor = None) -> Tensor:
        """Compute the logits, with a batch axis first if they are per-example."""
        if self.static is not None:
            return ops.convert_to_tensor(self.static)
        x, kernel = ops.cast(routing_inputs, "float32"), self.kernel
        if self.norms is not None:
            x = self.norms[0](x)
            kernel = ops.transpose(self.norms[1](ops.transpose(kernel)))
        # Without elements (one expert has no bits), -1 cannot give the batch size.
        batch = -1 if math.prod(self.shape) else ops.shape(x)[0]
        if len(x.shape) == 3:
            # Each gate has its own inputs. Gates are the first axis of the shape.
            gates = self.shape[0]
            kernel = ops.reshape(kernel, (x.shape[-1], gates, -1))
            logits = ops.einsum("bgd,dgs->bgs", x, kernel)
            logits = ops.reshape(logits, (batch, math.prod(self.shape)))
        else:
            logits = ops.matmul(x, kernel)
        if self.bias is not None:
            logits = logits + self.bias
        return ops.reshape(logits, (batch, *self.shape))

    def normalized(self, routing_inputs: Tensor) -> Tensor:
        """Return the routing inputs as the logits see them, in float32."""
        x = ops.cast(routing_inputs, "float32")
        return x if self.norms is None else self.norms[0](x)

    def assign(self, value: Any) -> None:
        """Set the logits; per-example logits become the same for every example."""
        if self.static is not None:
            self.static.assign(value)
        elif self.bias is None:
            raise ValueError(
                "Per-example logits without a bias cannot be assigned. Received: "
                "use_bias=False. Set use_bias=True."
            )
        else:
            offset = [] if self.norms is None else [self.norms[1].offset]
            for weight in [self.kernel, *offset]:
                weight.assign(np.zeros(weight.shape))
            self.bias.assign(ops.reshape(value, (-1,)))


class _Norm:
    """A layer normalization of rows, in float32."""

    def __init__(self, gate, name, scale):
        shape = (gate.routing_dim,)
        constant = keras.initializers.Constant(scale)
        self.scale = float32_weight(gate, f"{name}_scale", shape, constant)
        self.offset = float32_weight(gate, f"{name}_offset", shape)

    def __call__(self, x):
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        return centered * ops.rsqrt(variance + 1e-5) * self.scale + self.offset
