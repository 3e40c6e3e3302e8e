"""Call other callbacks only once the gates have decided."""

import warnings
from typing import Any

import keras

from dselectk_keras.gates.selector_gate import undecided_gates


class OnceDecided(keras.callbacks.Callback):
    """Calls other callbacks only after epochs in which all gates have decided.

    `EarlyStopping` and `ModelCheckpoint` would otherwise restore or save an epoch in
    which gates still use many experts.

    Args:
        *callbacks: Callbacks that act at the end of an epoch.

    Example:
        >>> stopping = keras.callbacks.EarlyStopping(
        ...     "val_task_loss", mode="min", patience=3, restore_best_weights=True
        ... )
        >>> callbacks = [DecideGates(), OnceDecided(stopping)]
    """

    def __init__(self, *callbacks: Any):
        super().__init__()
        if not all(isinstance(each, keras.callbacks.Callback) for each in callbacks):
            raise ValueError(
                "`callbacks` must be Keras callbacks. Received: "
                f"callbacks={callbacks!r}."
            )
        self.callbacks = callbacks
        self._called = False

    def set_params(self, params: Any) -> None:
        """Pass the parameters of the training on."""
        super().set_params(params)
        for callback in self.callbacks:
            callback.set_params(params)

    def set_model(self, model: Any) -> None:
        """Pass the model on."""
        super().set_model(model)
        for callback in self.callbacks:
            callback.set_model(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Pass the beginning on."""
        self._called = False
        for callback in self.callbacks:
            callback.on_train_begin(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Pass the epoch on, if all gates have decided."""
        if undecided_gates(self.model):
            return
        self._called = True
        for callback in self.callbacks:
            callback.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Pass the end on, and warn if no epoch was passed on."""
        for callback in self.callbacks:
            callback.on_train_end(logs)
        undecided = undecided_gates(self.model)
        if undecided and not self._called:
            names = ", ".join(type(each).__name__ for each in self.callbacks)
            warnings.warn(
                f"No epoch was passed on to {names}, because the gates never decided: "
                f"{'; '.join(undecided)}. Add `DecideGates()` to the "
                "callbacks, or, if it is there, let it decide earlier (`by`) or stop "
                "later (`patience`).",
                stacklevel=2,
            )
