"""The trainable numbers behind a gate."""

import math

import keras
from keras import ops

from dselectk_keras.initializers import clone_initializer


class Logits:
    """Logits of a given shape, static or computed from the routing inputs.

    Static logits are a variable of that shape. Per-example logits are an affine
    map of the routing inputs, one kernel for all of them, reshaped. Either lives
    in float32 whatever the gate's dtype policy is.

    With `normalize`, the routing inputs and each column of the kernel go through a
    layer normalization with a scale and an offset of their own; that of the kernel
    starts at 0.01, which makes the first weights nearly equal.

    Args:
        gate: The gate that owns the variables; its `routing_dim` says which kind.
        name: Prefix of the variables' names.
        shape: Shape of the logits without a batch axis.
        initializer: For the static logits, or the kernel and the bias.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to normalize the routing inputs and the kernel.
    """

    def __init__(self, gate, name, shape, initializer, use_bias=True, normalize=False):
        def variable(suffix, shape, seed_offset=0):
            return gate.add_weight(
                name=f"{name}_{suffix}",
                shape=shape,
                initializer=clone_initializer(initializer, seed_offset),
                dtype="float32",
                autocast=False,
            )

        self.shape = shape
        self.static = self.kernel = self.bias = None
        if gate.routing_dim is None:
            self.static = variable("logits", shape)
        else:
            size = math.prod(shape)
            self.kernel = variable("kernel", (gate.routing_dim, size))
            self.bias = variable("bias", (size,), 1) if use_bias else None
        self.norms = (
            [_Norm(gate, f"{name}_inputs", 1.0), _Norm(gate, f"{name}_kernel", 0.01)]
            if normalize and self.kernel is not None
            else None
        )

    def __call__(self, routing_inputs=None):
        """The logits, with a batch axis first if they are per-example."""
        if self.static is not None:
            return ops.convert_to_tensor(self.static)
        x, kernel = ops.cast(routing_inputs, "float32"), self.kernel
        if self.norms is not None:
            of_inputs, of_kernel = self.norms
            x = of_inputs(x)
            kernel = ops.transpose(of_kernel(ops.transpose(kernel)))
        if len(x.shape) == 3:
            # One input for each gate: the gates are the first axis of the shape.
            gates = self.shape[0]
            kernel = ops.reshape(kernel, (x.shape[-1], gates, -1))
            logits = ops.einsum("bgd,dgs->bgs", x, kernel)
            logits = ops.reshape(logits, (-1, math.prod(self.shape)))
        else:
            logits = ops.matmul(x, kernel)
        if self.bias is not None:
            logits = logits + self.bias
        # One expert has no bits: with no elements, -1 says nothing about the batch.
        batch = -1 if math.prod(self.shape) else ops.shape(logits)[0]
        return ops.reshape(logits, (batch, *self.shape))

    def assign(self, value):
        """Set the logits; per-example ones become the same for every example."""
        if self.static is not None:
            self.static.assign(value)
        elif self.bias is None:
            raise ValueError("Per-example logits without a bias cannot be assigned.")
        else:
            self.kernel.assign(ops.zeros_like(ops.convert_to_tensor(self.kernel)))
            self.bias.assign(ops.reshape(value, (-1,)))


class _Norm:
    """A layer normalization of rows, in float32."""

    def __init__(self, gate, name, scale):
        def variable(suffix, value):
            return gate.add_weight(
                name=f"{name}_{suffix}",
                shape=(gate.routing_dim,),
                initializer=keras.initializers.Constant(value),
                dtype="float32",
                autocast=False,
            )

        self.scale, self.offset = variable("scale", scale), variable("offset", 0.0)

    def __call__(self, x):
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        return centered * ops.rsqrt(variance + 1e-5) * self.scale + self.offset
