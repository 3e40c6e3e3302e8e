"""Relaxed draws of binary variables."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.ops.gumbel_noise import SMALLEST_UNIFORM
from dselectk_keras.ops.softmax import MIN_TEMPERATURE
from dselectk_keras.utils import Tensor


def relaxed_bernoulli(logits: Tensor, temperature: Tensor, seed: Any) -> Tensor:
    r"""Draws in [0, 1] that approach Bernoulli draws as the temperature falls.

    $$
    U = \mathrm{sigmoid}\Bigl(\frac{z + \log u - \log(1 - u)}{\tau}\Bigr), \qquad
    u \sim \mathrm{Uniform}(0, 1)
    $$

    $U > 1/2$ with probability $\mathrm{sigmoid}(z)$ at any temperature. The gradient
    with respect to $z$ is taken at fixed $u$.

    Args:
        logits: Tensor of logits $z$, of any shape.
        temperature: $\tau$: a positive number or a scalar tensor.
        seed: A `keras.random.SeedGenerator`, or an integer for the same draws in
            every call.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> found = relaxed_bernoulli([-99.0, 99.0], 1.0, seed=0)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.0, 1.0]

    Reference:
        Maddison et al., "The Concrete Distribution" (ICLR 2017), Appendix B; Jang et
        al., "Categorical Reparameterization with Gumbel-Softmax" (ICLR 2017).
    """
    logits = ops.cast(logits, "float32")
    u = keras.random.uniform(ops.shape(logits), seed=seed, dtype="float32")
    u = ops.clip(u, SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM)
    temperature = ops.maximum(ops.cast(temperature, "float32"), MIN_TEMPERATURE)
    return ops.sigmoid((logits + ops.log(u) - ops.log(1.0 - u)) / temperature)
