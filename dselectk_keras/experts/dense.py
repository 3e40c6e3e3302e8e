"""A bank of dense experts."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.experts.bank import check_indices
from dselectk_keras.experts.stacked import StackedExperts
from dselectk_keras.initializers import clone_initializer, stacked_initializer
from dselectk_keras.utils import Activation, Initializer, Tensor, get_from


@keras.saving.register_keras_serializable(package="dselectk_keras")
class DenseExperts(StackedExperts):
    r"""Dense experts with stacked kernels, computed in one product per layer.

    $$
    f_i(x) = \sigma(W_i^{(l)} \cdots \sigma(W_i^{(1)} x + b_i^{(1)}) \cdots
    + b_i^{(l)})
    $$

    With one shared input the first layer is a single matrix product of width
    $n h$. With `shared_input=False` the input has an axis for the experts too,
    `(batch, n, ..., features)`, as for a bank of towers. The kernel of each expert
    is initialized independently.

    Args:
        num_experts: The number of experts, $n$.
        units: Widths of the layers of an expert.
        activation: Activation of every layer, or a list with one per layer.
        dropout: Dropout rate after every layer but the last, independent for each
            expert.
        use_bias: Whether the layers have a bias.
        kernel_initializer: Initializer for the kernel of one expert.
        shared_input: Whether all experts see the same input.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: Tensor `(batch, ..., features)`, or `(batch, n, ..., features)`
            with `shared_input=False`.
        select: Indices of the experts to evaluate; `None` is all. With
            `shared_input=False` the input holds the selected experts only.
        return_hidden: Whether to return the outputs of the layer before the last too.
        training: Whether to apply dropout.

    Returns:
        A tensor `(batch, n, ..., units[-1])`; with `return_hidden`, also a tensor
        `(batch, n, ..., units[-2])`.

    Example:
        >>> experts = DenseExperts(num_experts=8, units=[16, 4])
        >>> experts(keras.ops.ones((2, 3))).shape
        (2, 8, 4)
    """

    def __init__(
        self,
        num_experts: int,
        units: int | Sequence[int] = (256,),
        activation: Activation | Sequence[Activation] = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        shared_input: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            num_experts, units, activation, dropout, use_bias, shared_input, **kwargs
        )
        self.kernel_initializer = get_from(
            keras.initializers, "kernel_initializer", kernel_initializer
        )
        self._kernels = []

    def build_kernel(self, layer: int, fan_in: int) -> None:
        """Create the stacked kernel of a layer."""
        name, shape = f"kernel_{layer}", (self.num_experts, fan_in, self.units[layer])
        initializer = clone_initializer(self.kernel_initializer, 1000 * layer)
        initializer = stacked_initializer(initializer)
        self._kernels.append(self.add_weight(shape, initializer, name=name))

    def kernel(self, layer: int, selected: list[int] | None = None) -> Tensor:
        """The kernels of a layer (see `StackedExperts`)."""
        return self.take_experts(self._kernels[layer], selected)

    def sliced(self, indices: Sequence[int]) -> "DenseExperts":
        """Some of the experts (see `ExpertBank.sliced`)."""
        indices = check_indices(indices, self.num_experts)
        bank = self.resized(len(indices)).build_like(self)
        bank.trainable = self.trainable
        for weight, variable in zip(bank.weights, self.weights, strict=True):
            weight.assign(ops.convert_to_numpy(variable)[indices])
        return bank


def check_dense(bank: Any, what: str) -> None:
    """Raise an error for another bank, which says what needs `DenseExperts`."""
    if not isinstance(bank, DenseExperts):
        raise ValueError(
            f"{what} needs `DenseExperts`, whose layers are known. Received: {bank!r}."
        )
