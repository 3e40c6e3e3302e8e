"""A bank of dense experts whose kernels are a factorized tensor."""

import math
import random
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.baselines.single_expert import check_dense
from dselectk_keras.experts import DenseExperts, ExpertBank
from dselectk_keras.models.architectures import ARCHITECTURES
from dselectk_keras.utils import Activation, Tensor, check_widths

# Settings of dense kernels, which factorized ones do not have.
OF_DENSE = {"gated", "kernel_initializer"}


@keras.saving.register_keras_serializable(package="dselectk_keras")
class TuckerExperts(DenseExperts):
    r"""Dense experts whose kernels are factorized and share factors.

    $$
    W_{d,h,i} = \sum_{a=1}^{r_1} \sum_{b=1}^{r_2} \sum_{c=1}^{r_3}
    S_{abc} \, U^{(1)}_{da} \, U^{(2)}_{hb} \, U^{(3)}_{ic}
    $$

    The kernels of all experts in one layer form one tensor $W$ in Tucker form; each
    expert has its own biases. Full ranks can represent any kernels. With smaller
    ranks the experts share more: with $r_3 = 1$ all kernels are multiples of one.

    The rows of the three matrices are initialized as random unit vectors, and the
    core $S$ uniformly in $\pm \sqrt{6 / (d + h)}$. Every entry of $W$ then has the
    variance that `glorot_uniform` gives.

    Args:
        num_experts: The number of experts, $n$.
        units: Widths of the layers of an expert.
        ranks: $(r_1, r_2, r_3)$ of every layer. `None` is half of each dimension,
            rounded up, with $r_3 \ge 2$.
        activation: Activation of every layer, or a list with one per layer.
        dropout: Dropout rate after every layer but the last, independent for each
            expert.
        shared_input: Whether all experts see the same input; see `DenseExperts`.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Example:
        >>> experts = TuckerExperts(num_experts=8, units=[16, 4], ranks=(3, 4, 2))
        >>> experts(keras.ops.ones((2, 3))).shape
        (2, 8, 4)

    Reference:
        Yang and Hospedales, "Deep Multi-task Representation Learning: A Tensor
        Factorisation Approach" (ICLR 2017), Section 3; Ma et al., "MMoE" (KDD 2018),
        Section 6.1.
    """

    def __init__(
        self,
        num_experts: int,
        units: int | Sequence[int] = (256,),
        ranks: Sequence[int] | None = None,
        activation: Activation | Sequence[Activation] = "relu",
        dropout: float = 0.0,
        shared_input: bool = True,
        **kwargs: Any,
    ):
        if unknown := OF_DENSE & kwargs.keys():
            raise ValueError(
                "Factorized kernels have no gates and initializers of their own. "
                f"Received: {', '.join(sorted(unknown))}. Leave them out, or use "
                "`DenseExperts`."
            )
        settings = {"shared_input": shared_input, **kwargs}
        super().__init__(num_experts, units, activation, dropout, **settings)
        self.ranks = None if ranks is None else tuple(check_widths("ranks", ranks))
        if self.ranks is not None and len(self.ranks) != 3:
            raise ValueError(
                "`ranks` must be three numbers, (inputs, units, experts). "
                f"Received: ranks={ranks}."
            )
        self._factors = []

    def build_kernel(self, layer: int, fan_in: int) -> None:
        sizes = (fan_in, self.units[layer], self.num_experts)
        ranks = self.ranks or _default_ranks(sizes)
        limit = math.sqrt(6 / (fan_in + self.units[layer]))
        uniform = keras.initializers.RandomUniform(-limit, limit)
        core = self.add_weight(tuple(ranks), uniform, name=f"core_{layer}")
        matrices = []
        for what, size, rank in zip(
            ("inputs", "units", "experts"), sizes, ranks, strict=True
        ):
            if rank > size:
                raise ValueError(
                    f"A rank of layer {layer} is larger than its dimension. Received: "
                    f"rank {rank} for {size} {what}, ranks={tuple(ranks)}. Lower it "
                    f"to {size}."
                )
            name = f"{what}_{layer}"
            matrices.append(self.add_weight((size, rank), _random_unit_rows, name=name))
        self._factors.append([core, *matrices])

    def kernel(self, layer: int) -> Tensor:
        factors = map(ops.convert_to_tensor, self._factors[layer])
        return ops.einsum("abc,da,hb,ic->idh", *factors)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {name: each for name, each in config.items() if name not in OF_DENSE}

    # Some of the experts would share the other factors.
    sliced = ExpertBank.sliced


@ARCHITECTURES.register("tensor_factorization")
def tensor_factorization(inputs, tasks, experts, *_, ranks=None):
    """One network per task, with one Tucker factorization of the kernels per layer.

    `TuckerExperts` defines the default ranks.

    Reference:
        Yang and Hospedales, "Deep Multi-task Representation Learning: A Tensor
        Factorisation Approach" (ICLR 2017), Section 3; Ma et al., "MMoE" (KDD 2018),
        Section 6.1.
    """
    check_dense(experts, "The architecture 'tensor_factorization'")
    return TuckerExperts(
        len(tasks),
        experts.units,
        ranks,
        experts.activation,
        experts.dropout,
        activity_regularizer=experts.activity_regularizer,
        dtype=experts.dtype_policy,
    )(inputs[0])


def _default_ranks(sizes):
    """Half of each dimension, but at least two for the experts, so that they differ."""
    inputs, units, experts = ((size + 1) // 2 for size in sizes)
    return inputs, units, max(experts, min(sizes[2], 2))


def _random_unit_rows(shape, dtype=None):
    """Rows drawn from the unit sphere."""
    # With NumPy: JAX would compile each step anew for each shape. Keras' own
    # initializers take their seeds from the same generator.
    draws = np.random.default_rng(random.randint(0, 2**31 - 1))
    rows = draws.normal(size=shape)
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    return ops.convert_to_tensor(rows, dtype)
