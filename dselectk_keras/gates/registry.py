"""The gates by name."""

from dselectk_keras.registry import Registry

GATES = Registry("gate")


def get(name, **settings):
    """A gate by its name, such as `get("dselect_k", num_nonzeros=4)`.

    Args:
        name: One of the names in `GATES`.
        **settings: The gate's arguments.

    Returns:
        A `Gate`.
    """
    return GATES.find(name)(**settings)
