"""The progress of many runs."""

import threading

import keras


class Progress:
    """One progress bar for all epochs of all copies; threads may share it.

    Args:
        total: The most epochs there may be.
        verbose: Whether to show it.
    """

    def __init__(self, total, verbose):
        self._bar = keras.utils.Progbar(total, unit_name="epoch") if verbose else None
        self._done = 0
        self._lock = threading.Lock()

    def end_epoch(self, copy):
        """Count an epoch, and those that an ended copy has left out.

        Args:
            copy: A `Copy`.
        """
        if self._bar is None:
            return
        left_out = copy.stopping.epochs - len(copy.logs)
        with self._lock:
            self._done += 1 if copy.status == "running" else 1 + left_out
            self._bar.update(self._done)
