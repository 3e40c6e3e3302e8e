"""Cross-stitch units between the networks of several tasks."""

from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.baselines.single_expert import check_dense
from dselectk_keras.initializers import clone_initializer
from dselectk_keras.models.architectures import ARCHITECTURES
from dselectk_keras.ops import mix
from dselectk_keras.utils import Configured, Shape, Tensor, check_number


@keras.saving.register_keras_serializable(package="dselectk_keras")
class CrossStitch(Configured, keras.Layer):
    r"""Mixes the features of the tasks' networks with trainable weights.

    $$
    \tilde x_t = \sum_{u=1}^{T} A_{tu} \, x_u
    $$

    The initial $A$ has $1 - s$ on the diagonal and $s / (T - 1)$ elsewhere.

    Args:
        initial_share: $s$, the initial share of the other tasks. With 0, the networks
            are initially independent.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: Tensor `(batch, tasks, ...)`.

    Returns:
        A tensor of the shape of `inputs`.

    Example:
        >>> stitch = CrossStitch(initial_share=0.25)
        >>> mixed = stitch(np.array([[[1.0], [2.0]]]))
        >>> keras.ops.convert_to_numpy(mixed).tolist()
        [[[1.25], [1.75]]]

    Reference:
        Misra et al., "Cross-stitch Networks for Multi-task Learning" (CVPR 2016),
        Equation 1.
    """

    def __init__(self, initial_share: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.initial_share = check_number(
            "initial_share", initial_share, minimum=0, maximum=1
        )

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 3 or input_shape[1] is None:
            raise ValueError(
                "Cross-stitch units need inputs (batch, tasks, ...) with a known "
                f"number of tasks. Received: {tuple(input_shape)}. Stack the tasks on "
                "axis 1."
            )
        tasks = input_shape[1]
        self.matrix = self.add_weight((tasks, tasks), self._start, name="matrix")
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return mix(inputs, self.matrix)

    def _start(self, shape, dtype=None):
        others = shape[0] - 1
        share = self.initial_share if others else 0.0
        matrix = np.full(shape, share / max(others, 1))
        np.fill_diagonal(matrix, 1.0 - share)
        return ops.cast(matrix, dtype)


@ARCHITECTURES.register("cross_stitch")
def cross_stitch(inputs, tasks, experts, *_, initial_share=0.1):
    """One network per task, mixed with the other networks after every layer.

    Dropout is applied before the outputs are mixed.

    Reference:
        Misra et al., "Cross-stitch Networks for Multi-task Learning" (CVPR 2016),
        Equation 1; Ma et al., "MMoE" (KDD 2018), Section 6.1.
    """
    check_dense(experts, "The architecture 'cross_stitch'")
    x = inputs[0]
    for layer, units in enumerate(experts.units):
        is_last = layer == len(experts.units) - 1
        x = experts.resized(
            len(tasks),
            units=[units],
            activation=[experts.activation[layer]],
            kernel_initializer=clone_initializer(
                experts.kernel_initializer, 1000 * layer
            ),
            shared_input=layer == 0,
            activity_regularizer=experts.activity_regularizer if is_last else None,
        )(x)
        if experts.dropout and not is_last:
            x = keras.layers.Dropout(experts.dropout, name=f"dropout_{layer}")(x)
        x = CrossStitch(initial_share, name=f"cross_stitch_{layer}")(x)
    return x
