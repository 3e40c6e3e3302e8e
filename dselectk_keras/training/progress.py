"""A progress bar for many copies."""

import threading

import keras


class Progress:
    """One progress bar for all epochs of all copies; it is thread-safe."""

    def __init__(self, total, verbose):
        self._bar = keras.utils.Progbar(total, unit_name="epoch") if verbose else None
        self._done = 0
        self._lock = threading.Lock()

    def end_epoch(self, copy):
        """Count an epoch, and the epochs that a stopped copy skips."""
        if self._bar is None:
            return
        skipped = copy.stopping.epochs - len(copy.logs)
        with self._lock:
            self._done += 1 if copy.status == "running" else 1 + skipped
            self._bar.update(self._done)
