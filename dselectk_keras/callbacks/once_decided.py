"""Call other callbacks only once the gates have decided."""

import math
import warnings
from typing import Any

import keras

from dselectk_keras.gates.selector_gate import undecided_gates


class OnceDecided(keras.callbacks.Callback):
    """Calls other callbacks only after epochs in which all gates have decided.

    `EarlyStopping` and `ModelCheckpoint` would otherwise restore or save an epoch in
    which gates still use many experts. At the end of a training, a line is printed if
    what they monitor was better in an epoch before the decision.

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
        self._epochs = []

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
        self._epochs = []
        for callback in self.callbacks:
            callback.on_train_begin(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Pass the epoch on, if all gates have decided."""
        decided = not undecided_gates(self.model)
        self._epochs.append((epoch, decided, dict(logs or {})))
        for callback in self.callbacks if decided else ():
            callback.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Pass the end on. Warn if no epoch was passed on, or say which was better."""
        for callback in self.callbacks:
            callback.on_train_end(logs)
        undecided = undecided_gates(self.model)
        if undecided and not any(decided for _, decided, _ in self._epochs):
            names = ", ".join(type(each).__name__ for each in self.callbacks)
            warnings.warn(
                f"No epoch was passed on to {names}, because the gates never decided: "
                f"{'; '.join(undecided)}. Add `DecideGates()` to the "
                "callbacks, or, if it is there, let it decide earlier (`by`) or stop "
                "later (`patience`).",
                stacklevel=2,
            )
        elif (self.params or {}).get("verbose"):
            for callback in self.callbacks:
                self._print_if_earlier_was_better(callback)

    def _print_if_earlier_was_better(self, callback):
        """Print a line if a callback did not see the best of what it monitors."""
        # A callback has it after the first epoch that was passed on.
        is_better = getattr(callback, "monitor_op", None)
        if is_better is None:
            return
        best: dict[bool, tuple[float, int]] = {}
        for epoch, decided, logs in self._epochs:
            value = float(logs.get(callback.monitor, math.nan))
            old = best.get(decided)
            if not math.isnan(value) and (old is None or is_better(value, old[0])):
                best[decided] = value, epoch + 1
        if len(best) == 2 and is_better(best[False][0], best[True][0]):
            (before, first), (after, second) = best[False], best[True]
            print(  # noqa: T201
                f"{type(callback).__name__} saw `{callback.monitor}` only after the "
                f"gates had decided: at best {after:.4g}, in epoch {second}. It was "
                f"{before:.4g} in epoch {first}, before they had decided. Try another "
                "`by` of `DecideGates`."
            )
