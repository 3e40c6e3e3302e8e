"""Initializers that draw new values for every variable and every expert."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from dselectk_keras.utils import Initializer, Tensor


def clone_initializer(initializer: Initializer, seed_offset: int = 0) -> Any:
    """A copy of an initializer that draws other values; a fixed seed is shifted.

    One initializer object gives the same values at every use, unless its seed is a
    `keras.random.SeedGenerator`: a copy would draw the first values again. `None` is
    Keras' default.
    """
    initializer = keras.initializers.get(initializer or "glorot_uniform")
    seed = getattr(initializer, "seed", None)
    drawn = isinstance(seed, keras.random.SeedGenerator)
    if drawn or not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] += seed_offset
    return type(initializer).from_config(config)


def stacked_initializer(initializer: Initializer) -> Callable[..., Tensor]:
    """An initializer of stacked kernels that draws each expert's kernel separately.

    A fan computed over the whole stack would be too large by the number of experts,
    and with the same fixed seed for each expert all experts would be equal.
    """

    def initialize(shape, dtype=None):
        num_experts, *shape = shape
        clones = [clone_initializer(initializer, i) for i in range(num_experts)]
        return ops.stack([clone(shape, dtype=dtype) for clone in clones])

    return initialize
