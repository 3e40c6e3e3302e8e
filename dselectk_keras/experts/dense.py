"""A bank of dense experts."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.experts.bank import built_like, check_selection
from dselectk_keras.experts.stacked import StackedExperts
from dselectk_keras.initializers import clone_initializer, stacked_initializer


@keras.saving.register_keras_serializable(package="dselectk_keras")
class DenseExperts(StackedExperts):
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
        super().__init__(
            num_experts, units, activation, dropout, use_bias, shared_input, **kwargs
        )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._kernels = []

    def build_kernel(self, layer, fan_in):
        """Create the stacked kernel of a layer."""
        self._kernels.append(
            self.add_weight(
                name=f"kernel_{layer}",
                shape=(self.num_experts, fan_in, self.units[layer]),
                initializer=stacked_initializer(
                    clone_initializer(self.kernel_initializer, 1000 * layer)
                ),
            )
        )

    def kernel(self, layer, selected=None):
        """The kernels of a layer (see `StackedExperts`)."""
        return self.pick(self._kernels[layer], selected)

    def sliced(self, indices):
        """Some of the experts (see `ExpertBank.sliced`)."""
        indices = check_selection(indices, self.num_experts)
        bank = self.resized(len(indices))
        built_like(bank, self)
        bank.trainable = self.trainable
        sources = [
            (variable, lambda array: array[indices]) for variable in self.weights
        ]
        for weight, (variable, take) in zip(bank.weights, sources, strict=True):
            weight.assign(take(ops.convert_to_numpy(variable)))
        return bank, sources

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
