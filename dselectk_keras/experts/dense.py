"""A bank of dense experts."""

from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.experts.bank import (
    ExpertBank,
    check_hidden,
    check_own_inputs,
    check_selection,
)
from dselectk_keras.initializers import clone, per_expert
from dselectk_keras.utils import check_count


@keras.saving.register_keras_serializable(package="dselectk_keras")
class DenseExperts(ExpertBank):
    r"""Dense experts in stacked kernels: all of them in one product a layer.

    $$
    f_i(x) = \sigma(W_i^{(l)} \cdots \sigma(W_i^{(1)} x + b_i^{(1)}) \cdots
    + b_i^{(l)})
    $$

    Against one shared input the first layer is a single matrix product of width
    $n h$. With `shared_input=False` the input has an axis for the experts as well,
    `(batch, n, ..., features)`, and each sees its own: a bank of towers is that.
    Each expert's kernel is initialized by itself.

    Args:
        num_experts: The number of experts, $n$.
        units: Widths of the layers of an expert.
        activation: Of every layer, or a list with one for each.
        dropout: Rate of dropout after every layer but the last; each expert drops
            its own.
        use_bias: Whether the layers have a bias.
        kernel_initializer: For the kernel of one expert.
        shared_input: Whether all experts see the same input.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: Tensor `(batch, ..., features)`, or `(batch, n, ..., features)`
            with `shared_input=False`.
        select: Numbers of the experts to evaluate; `None` is all. With
            `shared_input=False` the input has an axis for those selected only.
        return_hidden: Whether to give the outputs of the last layer but one too.
        training: Whether to drop.

    Returns:
        A tensor `(batch, n, ..., units[-1])`; with `return_hidden`, and another
        `(batch, n, ..., units[-2])`.

    Example:
        >>> experts = DenseExperts(num_experts=8, units=[16, 4])
        >>> experts(keras.ops.ones((2, 3))).shape
        (2, 8, 4)
    """

    def __init__(
        self,
        num_experts,
        units=(256,),
        activation: Any = "relu",
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        shared_input=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_count("num_experts", num_experts)
        units = [units] if isinstance(units, int) else list(units)
        if not units:
            raise ValueError(
                "`units` must hold the width of one layer or more. Received: units=[]."
            )
        for width in units:
            check_count("units", width)
        activations = (
            list(activation)
            if isinstance(activation, (list, tuple))
            else [activation] * len(units)
        )
        if len(activations) != len(units):
            raise ValueError(
                "`activation` must be one for all layers or a list with one for each. "
                f"Received: {len(activations)} for {len(units)} layers."
            )
        self.num_experts = num_experts
        self.units = units
        self.activation = [keras.activations.get(each) for each in activations]
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.shared_input = shared_input
        self._dropout = keras.layers.Dropout(dropout) if dropout else None

    def build(self, input_shape):
        """Create the stacked kernels and biases."""
        if len(input_shape) < (2 if self.shared_input else 3):
            raise ValueError(
                "Dense experts need inputs (batch, ..., features), or (batch, "
                "num_experts, ..., features) with shared_input=False. "
                f"Received: {tuple(input_shape)}."
            )
        self._kernels, self._biases = [], []
        fan_in = input_shape[-1]
        for layer, units in enumerate(self.units):
            self._kernels.append(
                self.add_weight(
                    name=f"kernel_{layer}",
                    shape=(self.num_experts, fan_in, units),
                    initializer=per_expert(
                        clone(self.kernel_initializer, 1000 * layer)
                    ),
                )
            )
            if self.use_bias:
                self._biases.append(
                    self.add_weight(
                        name=f"bias_{layer}",
                        shape=(self.num_experts, units),
                        initializer="zeros",
                    )
                )
            fan_in = units
        self.built = True

    def call(self, inputs, select=None, training=None, return_hidden=False):
        """Evaluate the experts, all in one product a layer."""
        selected = check_selection(select, self.num_experts)
        if return_hidden:
            check_hidden(self)
        x = hidden = inputs
        if not self.shared_input:
            check_own_inputs(inputs, len(selected))
        for layer, activation in enumerate(self.activation):
            hidden = x
            kernel = self._pick(self._kernels[layer], selected)
            shared = layer == 0 and self.shared_input
            x = _shared_product(x, kernel) if shared else _own_product(x, kernel)
            if self.use_bias:
                bias = self._pick(self._biases[layer], selected)
                middle = [1] * (len(x.shape) - 3)
                x = x + ops.reshape(bias, (len(selected), *middle, -1))
            x = activation(x)
            if self._dropout is not None and layer < len(self.units) - 1:
                x = self._dropout(x, training=training)
        return (x, hidden) if return_hidden else x

    @property
    def has_hidden(self):
        """Whether the experts have a layer before the last."""
        return len(self.units) > 1

    def parameters(self):
        """The kernels and biases, in the order of the layers."""
        return [
            ops.convert_to_tensor(variable)
            for pair in self._variables()
            for variable in pair
            if variable is not None
        ]

    def call_merged(self, inputs, weights, per_example=False, training=None):
        """Merge each layer's kernels and biases, and apply them (see `ExpertBank`)."""
        if not isinstance(weights, (list, tuple)):
            weights = [weights] * len(self.units)
        batch, several = "b" * per_example, len(weights[0].shape) > 1 + per_example
        lead = batch + "g" * several
        middle = "xyzuvw"[: len(inputs.shape) - 2]
        x, rows = inputs, "b"
        for layer, (kernel, bias) in enumerate(self._variables()):
            share = ops.cast(weights[layer], self.compute_dtype)
            merged = ops.tensordot(share, ops.convert_to_tensor(kernel), axes=1)
            out = "bg" if several else "b"
            x = ops.einsum(
                f"{rows}{middle}d,{lead}dh->{out}{middle}h",
                x,
                merged,
            )
            rows = out
            if bias is not None:
                offset = ops.matmul(share, ops.convert_to_tensor(bias))
                axes = [*([] if per_example else [1]), *ops.shape(offset)[:-1]]
                ones = [1] * len(middle)
                x = x + ops.reshape(offset, (*axes, *ones, bias.shape[-1]))
            x = self.activation[layer](x)
            if self._dropout is not None and layer < len(self.units) - 1:
                x = self._dropout(x, training=training)
        return x

    def _variables(self):
        """The kernel and the bias of each layer; `None` for one that is not there."""
        biases = self._biases or [None] * len(self.units)
        return list(zip(self._kernels, biases, strict=True))

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "units": self.units,
            "activation": [keras.activations.serialize(a) for a in self.activation],
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "shared_input": self.shared_input,
        }

    def _pick(self, variable, selected):
        if selected == list(range(self.num_experts)):
            return ops.convert_to_tensor(variable)
        return ops.take(variable, np.asarray(selected), axis=0)


def _shared_product(x, kernel):
    """`(b, ..., d)` by `(n, d, h)`, as one matrix product, to `(b, n, ..., h)`."""
    n, d, h = kernel.shape
    flat = ops.reshape(ops.transpose(kernel, (1, 0, 2)), (d, n * h))
    product = ops.matmul(x, flat)
    middle = list(ops.shape(x)[1:-1])
    product = ops.reshape(product, (-1, *middle, n, h))
    return ops.moveaxis(product, -2, 1) if middle else product


def _own_product(x, kernel):
    """`(b, n, ..., d)` by `(n, d, h)` to `(b, n, ..., h)`."""
    middle = "xyzuvw"[: len(x.shape) - 3]
    return ops.einsum(f"bn{middle}d,ndh->bn{middle}h", x, kernel)
