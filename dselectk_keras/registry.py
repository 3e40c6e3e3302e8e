"""Registries of public classes and functions by name."""

from collections.abc import Callable
from typing import Any

import keras


class Registry(dict):
    """A dict of classes or functions by name, filled by a decorator.

    A class is also registered with Keras, so that models with it can be loaded. `kind`
    is the name of the entries in errors.
    """

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def register(self, name: str) -> Callable:
        """Return a decorator that registers a class or function under a name."""
        if not isinstance(name, str):
            raise ValueError(f"`name` must be a string. Received: name={name!r}.")

        def add(entry):
            if name in self:
                raise ValueError(
                    f"There is a {self.kind} {name!r} already. Use another name."
                )
            if isinstance(entry, type):
                keras.saving.register_keras_serializable("dselectk_keras")(entry)
            self[name] = entry
            return entry

        return add

    def find(self, name: str) -> Any:
        """Return the entry of a name, or raise an error that lists the names."""
        if not isinstance(name, str) or name not in self:
            raise ValueError(
                f"There is no {self.kind} of the name {name!r}. "
                f"Known names: {', '.join(self)}."
            )
        return self[name]
