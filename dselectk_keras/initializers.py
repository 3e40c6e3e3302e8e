"""Initializers that draw new values for every variable and every expert."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from dselectk_keras._keras import copy_adapted
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


def copy_layer(layer: keras.Layer, seed_offset: int, **changes: Any) -> Any:
    """A copy of a layer without its weights, which draws other random numbers.

    Every fixed seed in its config is shifted, and `changes` replace entries, such as
    the name. What preprocessing layers got from data is copied.
    """

    def shift(seed):
        return (seed + seed_offset) % 2**32 if isinstance(seed, int) else seed

    config = _replace_in_config(layer.get_config(), "seed", shift)
    config.pop("name")
    copy = type(layer).from_config({**config, **changes})
    copy_adapted(layer, copy)
    return copy


def _replace_in_config(config: Any, key: str, change: Callable[[Any], Any]) -> Any:
    """A copy of a config with every entry under a key changed, at any depth.

    Entries that hold a container are searched instead.
    """
    if isinstance(config, dict):
        return {
            name: change(value)
            if name == key and not isinstance(value, (dict, list, tuple))
            else _replace_in_config(value, key, change)
            for name, value in config.items()
        }
    if isinstance(config, (list, tuple)):
        return type(config)(_replace_in_config(value, key, change) for value in config)
    return config
