"""Callbacks that hold other callbacks, and the state of callbacks."""

import inspect
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np


class CallbackGroup(keras.callbacks.Callback):
    """A callback that holds other callbacks.

    Args:
        callbacks: The callbacks, in the order in which they are called.
    """

    def __init__(self, callbacks: Iterable[Any]):
        super().__init__()
        callbacks = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
        if not all(isinstance(each, keras.callbacks.Callback) for each in callbacks):
            raise ValueError(
                "`callbacks` must be a list of Keras callbacks. Received: "
                f"callbacks={callbacks!r}."
            )
        self.callbacks = callbacks

    def set_params(self, params: Any) -> None:
        """Pass the parameters of the training on."""
        super().set_params(params)
        self.pass_on("set_params", params)

    def set_model(self, model: Any) -> None:
        """Pass the model on."""
        super().set_model(model)
        self.pass_on("set_model", model)

    def pass_on(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call a method of each callback."""
        for callback in self.callbacks:
            getattr(callback, event)(*args, **kwargs)

    def get_state(self) -> dict:
        """Return the state of each callback, by class and place."""
        return dict(zip(self._names(), map(state_of, self.callbacks), strict=True))

    def set_state(self, state: dict) -> None:
        """Set the state of each callback."""
        names = self._names()
        if names != list(state):
            raise ValueError(
                "Training must be resumed with the callbacks it began with: "
                f"{', '.join(state) or 'none'}. Received: {', '.join(names) or 'none'}."
            )
        for callback, own in zip(self.callbacks, state.values(), strict=True):
            restore_state(callback, own)

    def _names(self):
        return [
            f"{type(callback).__name__}_{i}"
            for i, callback in enumerate(self.callbacks)
        ]


def state_of(callback: Any) -> dict:
    """Get what a callback has to know to go on in another process.

    A callback may say so itself, with the methods `get_state()` and `set_state(state)`.
    Of others it is every attribute that is a number, a string or an array, or a list or
    dict of these, except the arguments of the constructor.
    """
    if hasattr(callback, "get_state"):
        return callback.get_state()
    given = {"params", *inspect.signature(type(callback)).parameters}
    return {
        name: value
        for name, value in vars(callback).items()
        if name not in given and _is_plain(value)
    }


def restore_state(callback: Any, state: dict) -> None:
    """Set what `state_of` returned, after the callback's own `on_train_begin`."""
    if hasattr(callback, "set_state"):
        callback.set_state(state)
    else:
        vars(callback).update(state)


def _is_plain(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(value[key]) for key in value)
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (int, float, str, np.generic, np.ndarray))
