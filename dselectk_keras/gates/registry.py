"""The gates by name."""

from typing import Any

from dselectk_keras.registry import Registry

GATES = Registry("gate")


def get(name: str, **settings: Any) -> Any:
    """Create a gate by its name, such as `get("dselect_k", num_nonzeros=4)`.

    Args:
        name: One of the names in `GATES`.
        **settings: The arguments of the gate's class.

    Returns:
        A `Gate`.
    """
    return GATES.find(name)(**settings)
