"""Initializers that draw new values for every variable and every expert."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import all_layers, copy_adapted
from dselectk_keras.utils import (
    NUM_SEEDS,
    Initializer,
    Tensor,
    argument_names,
    is_concrete,
)

# Their numbers do not depend on the shape: they can draw many variables at once.
DRAW_EACH_NUMBER = (
    keras.initializers.RandomUniform,
    keras.initializers.RandomNormal,
    keras.initializers.TruncatedNormal,
    keras.initializers.Constant,
    keras.initializers.Zeros,
    keras.initializers.Ones,
)


def clone_initializer(initializer: Initializer, seed_offset: int = 0) -> Any:
    """A copy of an initializer that draws other values; a fixed seed is shifted.

    One initializer object gives the same values at every use, unless its seed is a
    `keras.random.SeedGenerator`: a copy would draw the first values again. `None` is
    Keras' default.
    """
    return _clones(initializer, [seed_offset])[0]


def _clones(initializer, seed_offsets):
    """Copies of an initializer, one for each offset of a fixed seed."""
    initializer = keras.initializers.get(initializer or "glorot_uniform")
    seed = getattr(initializer, "seed", None)
    drawn = isinstance(seed, keras.random.SeedGenerator)
    if drawn or not isinstance(initializer, keras.initializers.Initializer):
        return [initializer] * len(seed_offsets)
    config, make = _checked_config(initializer), type(initializer).from_config
    return [make(_separate(config, offset)) for offset in seed_offsets]


def stacked_initializer(initializer: Initializer) -> Callable[..., Tensor]:
    """An initializer of stacked kernels that draws each expert's kernel separately.

    A fan computed over the whole stack would be too large by the number of experts,
    and with the same fixed seed for each expert all experts would be equal.
    """

    def initialize(shape, dtype=None):
        num_experts, *shape = shape
        clones = _clones(initializer, range(num_experts))
        draws = [clone(shape, dtype=dtype) for clone in clones]
        if keras.backend.backend() != "jax" or not is_concrete(draws[0]):
            return ops.stack(draws)
        # JAX would compile a program with an operand for each expert.
        stacked = np.stack([*map(ops.convert_to_numpy, draws)])
        return ops.convert_to_tensor(stacked, dtype)

    return initialize


def block_initializer(
    stacked: Callable[..., Tensor], num_blocks: int
) -> Callable[..., Tensor]:
    """An initializer of the blocks of columns of a kernel, from one of a stack."""

    def initialize(shape, dtype=None):
        *rows, size = shape
        blocks = stacked((num_blocks, *rows, size // num_blocks), dtype=dtype)
        return ops.reshape(ops.moveaxis(blocks, 0, -2), shape)

    return initialize


def copy_layer(layer: keras.Layer, seed_offset: int, **changes: Any) -> Any:
    """A copy of a layer without its weights, which draws other random numbers.

    Every fixed seed in its config is shifted, and `changes` replace entries, such as
    the name. What preprocessing layers got from data is copied.
    """
    for each in all_layers(layer):
        for value in vars(each).values():
            if isinstance(value, keras.initializers.Initializer):
                _checked_config(value)
    config = _separate(layer.get_config(), seed_offset)
    config.pop("name")
    copy = type(layer).from_config({**config, **changes})
    copy_adapted(layer, copy)
    return copy


def _checked_config(initializer: keras.initializers.Initializer) -> dict[str, Any]:
    """The config of an initializer, or an error if it lacks a setting."""
    config = initializer.get_config()
    known = inspect.signature(type(initializer)).parameters
    lost = [
        name
        for name in {*argument_names(type(initializer))} - {*config}
        if getattr(initializer, name, None) is not known[name].default
    ]
    if lost:
        raise ValueError(
            "Layers copy initializers by their configs, which must have all settings. "
            f"Received: {type(initializer).__name__} without {sorted(lost)} in its "
            "config. Return them from `get_config`."
        )
    return config


def _separate(config: Any, seed_offset: int) -> Any:
    """A copy of a config with shifted seeds, of objects that nothing else has.

    While Keras loads a model, it makes one object of all configs with one
    `shared_object_id`.
    """
    if isinstance(config, (list, tuple)):
        return type(config)(_separate(part, seed_offset) for part in config)
    if not isinstance(config, dict):
        return config
    copy = {name: _separate(part, seed_offset) for name, part in config.items()}
    copy.pop("shared_object_id", None)
    if seed_offset and isinstance(seed := copy.get("seed"), int):
        copy["seed"] = (seed + seed_offset) % NUM_SEEDS
    return copy
