"""A bank of dense experts."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.experts.bank import Source, check_indices
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

    `quantize("int8")`, of the bank or of a model, stores the kernels in 8 bits, with
    one scale for each expert and unit. The arithmetic stays in floating point, and the
    kernels are no longer trained.

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
        self._scales = []

    def build_kernel(self, layer: int, fan_in: int) -> None:
        """Create the stacked kernel of a layer."""
        name, shape = f"kernel_{layer}", (self.num_experts, fan_in, self.units[layer])
        if self.quantization_mode is not None:
            self._build_int8(layer, shape)
            return
        initializer = clone_initializer(self.kernel_initializer, 1000 * layer)
        initializer = stacked_initializer(initializer)
        self._kernels.append(self.add_weight(shape, initializer, name=name))

    def kernel(self, layer: int, selected: list[int] | None = None) -> Tensor:
        """The kernels of a layer (see `StackedExperts`)."""
        kernel = self.take_experts(self._kernels[layer], selected)
        if not self._scales:
            return kernel
        scale = self.take_experts(self._scales[layer], selected)
        return ops.cast(kernel, "float32") / scale

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None):
        """Store the kernels in 8 bits (see `keras.Layer.quantize`).

        Args:
            mode: `"int8"`.
            type_check: Not used.
            config: Not used, since activations stay in floating point. It must not
                have a quantizer for the weights.
        """
        if mode != "int8" or getattr(config, "weight_quantizer", None) is not None:
            # `keras.Model.quantize` makes this a warning, and goes on.
            raise NotImplementedError(
                f"The experts of {self.name!r} can be stored in 8 bits only, as by "
                f'quantize("int8"). Received: mode={mode!r} and config={config!r}. '
                "They stay as they are."
            )
        kernels = [ops.convert_to_numpy(kernel) for kernel in self._kernels]
        self._kernels.clear()
        for layer, kernel in enumerate(kernels):
            self._build_int8(layer, kernel.shape)
            rounded, scale = keras.quantizers.abs_max_quantize(
                kernel, axis=1, to_numpy=True
            )
            self._kernels[layer].assign(rounded)
            self._scales[layer].assign(scale)
        policy: Any = self.dtype_policy
        self.dtype_policy = f"int8_from_{policy.name}"

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the experts, as Keras asks for if they are quantized."""
        return self.call(*args, **kwargs)

    def _build_int8(self, layer, shape):
        """Create the kernels of a layer in 8 bits, and their scales."""
        frozen = {"initializer": "ones", "trainable": False}
        self._kernels.append(
            self.add_weight(name=f"kernel_{layer}", shape=shape, dtype="int8", **frozen)
        )
        # Half precision would be as coarse as 8 bits.
        frozen |= {"dtype": "float32", "autocast": False}
        shape = (shape[0], 1, shape[2])
        self._scales.append(
            self.add_weight(name=f"scale_{layer}", shape=shape, **frozen)
        )
        # Keras reads this, so that it does not quantize a second time.
        self._is_quantized = True

    def sliced(self, indices: Sequence[int]) -> tuple["DenseExperts", list[Source]]:
        """Some of the experts (see `ExpertBank.sliced`)."""
        indices = check_indices(indices, self.num_experts)
        bank = self.resized(len(indices)).build_like(self)
        bank.trainable = self.trainable
        sources = [
            (variable, lambda array: array[indices]) for variable in self.weights
        ]
        for weight, (variable, take) in zip(bank.weights, sources, strict=True):
            weight.assign(take(ops.convert_to_numpy(variable)))
        return bank, sources


def check_dense(bank: Any, what: str) -> None:
    """Raise an error for another bank, which says what needs `DenseExperts`."""
    if not isinstance(bank, DenseExperts):
        raise ValueError(
            f"{what} needs `DenseExperts`, whose layers are known. Received: {bank!r}."
        )
