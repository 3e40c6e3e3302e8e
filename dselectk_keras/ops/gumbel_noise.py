"""Gumbel noise."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.utils import Tensor

# Uniform float32 numbers are multiples of 2^-24 or 2^-23.
SMALLEST_UNIFORM = 2.0**-24


def gumbel_noise(shape: Any, seed: Any) -> Tensor:
    r"""Draws from the standard Gumbel distribution.

    $$
    \varepsilon = -\log(-\log u), \qquad u \sim \mathrm{Uniform}(0, 1)
    $$

    The argmax of logits plus this noise is a draw from their softmax. With float32
    numbers $u$, draws lie in [-2.9, 16.7].

    Args:
        shape: Shape of the draws.
        seed: A `keras.random.SeedGenerator`, or an integer for the same draws in
            every call.

    Returns:
        A float32 tensor.

    Example:
        >>> gumbel_noise((2, 3), seed=0).shape
        (2, 3)

    Reference:
        Jang et al., "Categorical Reparameterization with Gumbel-Softmax" (ICLR 2017),
        Equation 1.
    """
    u = keras.random.uniform(shape, seed=seed, dtype="float32")
    return -ops.log(-ops.log(ops.clip(u, SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM)))
