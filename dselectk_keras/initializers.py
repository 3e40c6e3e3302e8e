"""Initializers drawn afresh for every variable and for every expert."""

import keras
from keras import ops


def clone_initializer(initializer, seed_offset=0):
    """A copy of an initializer that draws numbers of its own.

    One initializer object gives the same numbers at every use.

    Args:
        initializer: An identifier that `keras.initializers.get` knows.
        seed_offset: Added to the initializer's seed, if it has a fixed one.

    Returns:
        A Keras initializer.
    """
    initializer = keras.initializers.get(initializer)
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] += seed_offset
    return type(initializer).from_config(config)


def stacked_initializer(initializer):
    """An initializer of stacked kernels that draws each expert's by itself.

    A fan computed over the whole stack would be wrong by the number of experts,
    and a fixed seed used for each expert would make them all the same.

    Args:
        initializer: An identifier that `keras.initializers.get` knows, for the
            kernel of one expert.

    Returns:
        A callable of `(num_experts, *shape)` and a dtype.
    """

    def initialize(shape, dtype=None):
        num_experts, *shape = shape
        return ops.stack(
            [
                clone_initializer(initializer, i)(shape, dtype=dtype)
                for i in range(num_experts)
            ]
        )

    return initialize
