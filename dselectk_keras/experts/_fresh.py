"""Layers like another that draw numbers of their own."""

from dselectk_keras.experts.experts import reseed


def fresh_copy(layer, seed_offset, **changes):
    """A layer with the config of another, which may have fixed seeds.

    Args:
        layer: A Keras layer.
        seed_offset: Added to every fixed seed in the config.
        **changes: Arguments that are to change.

    Returns:
        A layer that is not built.
    """
    config = reseed({**layer.get_config(), **changes}, seed_offset)
    config.pop("name")
    return type(layer).from_config(config)
