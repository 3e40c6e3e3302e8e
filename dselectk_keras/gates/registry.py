"""The gates by name."""

from typing import Any

from dselectk_keras.registry import Registry
from dselectk_keras.utils import argument_names

GATES = Registry("gate")


def get(name: str, **settings: Any) -> Any:
    """Create a gate by its name, such as `get("dselect_k", num_nonzeros=4)`.

    Args:
        name: One of the names in `GATES`.
        **settings: The arguments of the gate's class.

    Returns:
        A `Gate`.
    """
    check_settings(name, settings)
    return GATES.find(name)(**settings)


def check_settings(name: str, settings: dict[str, Any]) -> None:
    """Raise an error for settings that a gate does not have, with those it has."""
    known = argument_names(GATES.find(name))
    if unknown := [each for each in settings if each not in {*known, "dtype"}]:
        raise ValueError(
            f"The arguments of the gate {name!r} are: {', '.join(known)}. "
            f"Received: {', '.join(map(repr, unknown))}."
        )
