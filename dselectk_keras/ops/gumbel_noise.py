"""Gumbel noise."""

import keras
from keras import ops

# Uniform numbers come in steps of 2^-24 or 2^-23: the ends are half a step away.
SMALLEST = 2.0**-24


def gumbel_noise(shape, seed):
    r"""Draws from the standard Gumbel distribution.

    $$
    \varepsilon = -\log(-\log u), \qquad u \sim \mathrm{Uniform}(0, 1)
    $$

    The largest of logits with this noise is a draw from their softmax. Draws lie in
    [-2.9, 16.7]: what float32 numbers $u$ can give.

    Args:
        shape: Shape of the draws.
        seed: A `keras.random.SeedGenerator`, or an integer for the same draws at
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
    return -ops.log(-ops.log(ops.clip(u, SMALLEST, 1.0 - SMALLEST)))
