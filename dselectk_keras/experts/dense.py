"""A bank of dense experts."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.experts.bank import ExpertBank
from dselectk_keras.initializers import clone_initializer, stacked_initializer
from dselectk_keras.ops import matmul, mix_parameters, sum_segments
from dselectk_keras.utils import (
    MAX_EXPERTS,
    Activation,
    Initializer,
    Shape,
    Tensor,
    check_count,
    check_flags,
    check_integers,
    check_number,
    check_widths,
    get_from,
)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class DenseExperts(ExpertBank):
    r"""Dense experts with stacked kernels, computed in one product per layer.

    $$
    f_i(x) = \sigma(W_i^{(l)} \cdots \sigma(W_i^{(1)} x + b_i^{(1)}) \cdots
    + b_i^{(l)})
    $$

    With one shared input the first layer is a single matrix product of width
    $n h$. With `shared_input=False` the input has an axis for the experts too,
    `(batch, n, ..., features)`, as for a bank of towers. The kernel of each expert
    is initialized independently.

    With `gated=True`, a hidden layer is a gated linear unit,

    $$
    x \mapsto \sigma(x W_i + b_i) \odot (x V_i + c_i),
    $$

    whose kernel has the columns of $W_i$ first and those of $V_i$ last. With the
    activation `"silu"` the experts are SwiGLU networks, whose biases start at zero:
    `DenseExperts(n, [h, d], ["silu", None], gated=True)`.

    Args:
        num_experts: The number of experts, $n$.
        units: Widths of the layers of an expert.
        activation: Activation of every layer, or a list with one per layer.
        dropout: Dropout rate after every layer but the last, independent for each
            expert.
        kernel_initializer: Initializer for the kernel of one expert.
        shared_input: Whether all experts see the same input.
        gated: Whether the activation of a hidden layer gates a second product. The last
            layer has no gate.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: Tensor `(batch, ..., features)`, or `(batch, n, ..., features)`
            with `shared_input=False`.
        training: Whether to apply dropout.

    Returns:
        A tensor `(batch, n, ..., units[-1])`.

    Example:
        >>> experts = DenseExperts(num_experts=8, units=[16, 4])
        >>> experts(keras.ops.ones((2, 3))).shape
        (2, 8, 4)

    Reference:
        Shazeer, "GLU Variants Improve Transformer" (2020), Equations 5 and 6, for
        `gated`.
    """

    def __init__(
        self,
        num_experts: int,
        units: int | Sequence[int] = (256,),
        activation: Activation | Sequence[Activation] = "relu",
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        shared_input: bool = True,
        gated: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_experts = check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
        self.units = check_widths("units", units)
        if not self.units:
            raise ValueError("`units` must hold one width or more. Received: units=[].")
        self.dropout = check_number("dropout", dropout, minimum=0, maximum=1)
        check_flags(shared_input=shared_input, gated=gated)
        if gated and len(self.units) == 1:
            raise ValueError(
                "gated=True gates hidden layers, and needs two widths or more. "
                f"Received: units={self.units}."
            )
        if not isinstance(activation, (list, tuple)):
            activation = [activation] * len(self.units)
        if len(activation) != len(self.units):
            raise ValueError(
                "`activation` must be one activation, or a list with one per layer. "
                f"Received: {len(activation)} for {len(self.units)} layers."
            )
        self.activation = [
            get_from(keras.activations, "activation", each) for each in activation
        ]
        self.kernel_initializer = get_from(
            keras.initializers, "kernel_initializer", kernel_initializer
        )
        self.shared_input = shared_input
        self.gated = gated
        # The number of products of each layer: with a gate there are two.
        self._products = [2 if gated else 1] * (len(self.units) - 1) + [1]
        self._dropout = (
            keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
            if dropout
            else None
        )
        self._kernels = []
        self._biases = []

    def build(self, input_shape: Shape) -> None:
        self.check_inputs(input_shape, rank=2)
        fan_in = input_shape[-1]
        axes = {-1: fan_in} if self.shared_input else {1: self.num_experts, -1: fan_in}
        self.input_spec = keras.InputSpec(axes=axes)
        for layer, units in enumerate(self.units):
            self.build_kernel(layer, fan_in)
            shape = (self.num_experts, units * self._products[layer])
            self._biases.append(self.add_weight(shape, "zeros", name=f"bias_{layer}"))
            fan_in = units
        self.built = True

    def build_kernel(self, layer: int, fan_in: int) -> None:
        """Create the variable of a layer's kernels."""
        shape = (self.num_experts, fan_in, self.units[layer])
        products = [
            stacked_initializer(
                clone_initializer(self.kernel_initializer, 1000 * layer + 250_007 * i)
            )
            for i in range(self._products[layer])
        ]

        def initialize(_, dtype=None):
            # Each product by itself: the columns of both would be too many for a fan.
            return ops.concatenate([draw(shape, dtype) for draw in products], axis=-1)

        stacked = (*shape[:-1], shape[-1] * len(products))
        self._kernels.append(
            self.add_weight(stacked, initialize, name=f"kernel_{layer}")
        )

    def kernel(self, layer: int) -> Tensor:
        """The kernels of a layer, `(n, fan_in, units)`, or twice the units if gated."""
        return self._kernels[layer]

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        x = self._cast(inputs)
        for layer in range(len(self.units)):
            x = self.call_layer(layer, x, training)
        return x

    def call_layer(self, layer: int, x: Tensor, training: bool | None = None) -> Tensor:
        """Evaluate a layer of all experts."""
        kernel, bias = self._kernel_and_bias(layer)
        if layer == 0 and self.shared_input:
            x = _multiply_shared(x, kernel)
        else:
            x = _multiply_own(x, kernel)
        middle = [1] * (len(x.shape) - 3)
        if middle:
            bias = ops.reshape(bias, (self.num_experts, *middle, -1))
        return self._activate(layer, x + bias, training)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Compute the shape of the outputs.

        Without it, tracing took a quarter of the time in which TensorFlow builds a
        model.
        """
        middle = input_shape[1 if self.shared_input else 2 : -1]
        return (input_shape[0], self.num_experts, *middle, self.units[-1])

    @property
    def can_dispatch(self) -> bool:
        return (
            self.shared_input and not self.dropout and self.activity_regularizer is None
        )

    def call_slots(self, inputs: Tensor, owners: Tensor = None) -> Tensor:
        middle = list(ops.shape(inputs)[1:-1])  # Sizes may be unknown on TensorFlow.
        # Not einsum with a batch axis before the experts, which takes 1.5 times as long
        # (JAX, 64 experts of 512, two CPU cores).
        blocks = self.num_experts if owners is None else ops.shape(owners)[0]
        x = ops.reshape(inputs, (blocks, -1, inputs.shape[-1]))
        for layer in range(len(self.units)):
            kernel, bias = self._kernel_and_bias(layer)
            if owners is None:
                x = matmul(x, kernel) + ops.expand_dims(bias, 1)
            else:
                x = _multiply_blocks(x, kernel, bias, owners)
            x = self._activate(layer, x)
        return ops.reshape(x, (-1, *middle, self.units[-1]))

    def _kernel_and_bias(self, layer):
        """The kernels and biases of a layer."""
        return self._cast(self.kernel(layer)), self._cast(self._biases[layer])

    def _activate(self, layer, x, training=None):
        """Apply the activation, and dropout."""
        activation = self.activation[layer]
        if self._products[layer] == 1:
            x = activation(x)
        else:
            gate, value = ops.split(x, 2, axis=-1)
            x = activation(gate) * value
        if self._dropout is not None and layer < len(self.units) - 1:
            x = self._dropout(x, training=training)
        return x

    def parameters(self) -> list[Tensor]:
        pairs = [(self.kernel(i), bias) for i, bias in enumerate(self._biases)]
        return [ops.convert_to_tensor(each) for pair in pairs for each in pair]

    def call_merged(
        self,
        inputs: Tensor,
        weights: Tensor,
        per_example: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        if not isinstance(weights, (list, tuple)):
            weights = [weights] * len(self.units)
        batch, several = "b" * per_example, len(weights[0].shape) > 1 + per_example
        lead = batch + "g" * several
        middle = "xyzuvw"[: len(inputs.shape) - 2]
        x, rows = self._cast(inputs), "b"
        out = "bg" if several else "b"
        for layer in range(len(self.units)):
            share = self._cast(weights[layer])
            kernel, bias = self._kernel_and_bias(layer)
            kernel, bias = (mix_parameters(share, each) for each in (kernel, bias))
            axes = [*([] if per_example else [1]), *ops.shape(bias)[:-1]]
            bias = ops.reshape(bias, (*axes, *[1] * len(middle), bias.shape[-1]))
            x = ops.einsum(f"{rows}{middle}d,{lead}dh->{out}{middle}h", x, kernel)
            x, rows = self._activate(layer, x + bias, training), out
        return x

    def sliced(self, indices: Sequence[int]) -> "DenseExperts":
        indices = check_integers("indices", indices, 0, self.num_experts - 1)
        bank = self.resized(len(indices)).build_like(self)
        bank.trainable = self.trainable
        for weight, variable in zip(bank.weights, self.weights, strict=True):
            weight.assign(ops.convert_to_numpy(variable)[indices])
        return bank

    def _cast(self, value):
        return ops.cast(value, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        activations = [keras.activations.serialize(each) for each in self.activation]
        return {**super().get_config(), "activation": activations}


def _multiply_blocks(x, kernel, bias, owners):
    """`(blocks, size, d)` by the kernels `(n, d, h)` of the owners, plus their biases.

    Each block needs a copy of a kernel. The gradient takes them again, so that no layer
    keeps its copies until then.
    """
    n = kernel.shape[0]

    # JAX wants all tensors as arguments.
    @ops.custom_gradient
    def multiply(x, kernel, bias, owners):
        def gradient(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            # A zero that depends on the gradient: compilers would keep equal copies.
            nan = ops.isnan(ops.reshape(upstream, (-1,))[0])
            nan = ops.cast(nan, owners.dtype)
            copies = ops.take(kernel, owners + nan * (1 - nan), axis=0)
            products = matmul(ops.swapaxes(x, 1, 2), upstream)
            of_bias = sum_segments(ops.sum(upstream, axis=1), owners, n)
            of_kernel = sum_segments(products, owners, n)
            return (
                matmul(upstream, ops.swapaxes(copies, 1, 2)),
                of_kernel,
                of_bias,
                None,
            )

        product = matmul(x, ops.take(kernel, owners, axis=0))
        product += ops.expand_dims(ops.take(bias, owners, axis=0), 1)
        return product, gradient

    return multiply(x, ops.convert_to_tensor(kernel), bias, owners)


def _multiply_shared(x, kernel):
    """`(b, ..., d)` by `(n, d, h)`, as one matrix product, to `(b, n, ..., h)`."""
    n, d, h = kernel.shape
    if keras.backend.backend() == "torch":
        # A batched product copies neither the kernel nor its outputs: on torch, the
        # axis of the experts may come first in memory.
        flat = x if len(x.shape) == 2 else ops.reshape(x, (-1, d))
        product = matmul(ops.expand_dims(flat, 0), kernel)
        if len(x.shape) > 2:
            product = ops.reshape(product, (n, *ops.shape(x)[:-1], h))
        return ops.swapaxes(product, 0, 1)
    flat = ops.reshape(ops.transpose(kernel, (1, 0, 2)), (d, n * h))
    product = matmul(x, flat)
    middle = list(ops.shape(x)[1:-1])
    product = ops.reshape(product, (-1, *middle, n, h))
    return ops.moveaxis(product, -2, 1) if middle else product


def _multiply_own(x, kernel):
    """`(b, n, ..., d)` by `(n, d, h)` to `(b, n, ..., h)`."""
    n, d, h = kernel.shape
    # Not einsum, which takes up to 1.7 times as long.
    x = ops.moveaxis(x, 1, 0)
    if len(x.shape) == 3:
        return ops.moveaxis(matmul(x, kernel), 0, 1)
    product = matmul(ops.reshape(x, (n, -1, d)), kernel)
    product = ops.reshape(product, (n, -1, *list(ops.shape(x)[2:-1]), h))
    return ops.moveaxis(product, 0, 1)
