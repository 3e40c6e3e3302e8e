"""Backups of a training, and of its early stopping, that no kill can damage."""

import pathlib

import keras
import numpy as np

from common.files import damaged, whole


class Backup(keras.callbacks.Callback):
    """Saves weights and optimizer after each epoch, in a file named by the epoch.

    Unlike with `keras.callbacks.BackupAndRestore`, the number of the epoch is not in
    another file, which a kill could leave behind, and the file is written whole: there
    is always the last backup or the one before it.

    Args:
        folder: The folder of the backups.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = pathlib.Path(folder)

    def restore(self, model):
        """Restore a compiled model; return the number of epochs that it was trained."""
        if not (paths := self._paths()):
            return 0
        model.optimizer.build(model.trainable_variables)
        try:
            model.load_weights(paths[-1])
        except OSError as error:
            raise damaged(paths[-1], error) from error
        return int(paths[-1].name.partition(".")[0])

    def on_epoch_end(self, epoch, logs=None):
        """Save, and remove what was saved before."""
        path = self.folder / f"{epoch + 1:06d}.weights.h5"
        with whole(path) as part:
            self.model.save_weights(part)
        for before in self._paths():
            if before != path:
                before.unlink()

    def _paths(self):
        return sorted(self.folder.glob("[0-9]*.weights.h5"))


class KeepStopping(keras.callbacks.Callback):
    """Lets an `EarlyStopping` go on after an interruption: it keeps its state in files.

    Args:
        stopping: The `EarlyStopping`, which is before this one among the callbacks.
        folder: The folder of the files, one for each of the last two epochs.
        done: The number of epochs that a `Backup` has restored.
    """

    def __init__(self, stopping, folder, done):
        super().__init__()
        self.stopping, self.folder = stopping, folder
        self.kept = {}
        if done and self._path(done).exists():
            with np.load(self._path(done)) as found:
                self.kept = dict(found)

    def _path(self, epochs):
        return self.folder / f"stopping-{epochs:06d}.npz"

    @property
    def is_past(self):
        """Check whether the training had stopped before the interruption."""
        return self.kept.get("wait", 0) >= self.stopping.patience

    def on_train_begin(self, logs=None):
        """Restore the state."""
        if self.kept:
            best, wait, epoch = (self.kept[name] for name in ("best", "wait", "epoch"))
            self.stopping.best = None if np.isnan(best) else float(best)
            self.stopping.wait, self.stopping.best_epoch = int(wait), int(epoch)
            weights = [name for name in self.kept if name.isdigit()]
            if weights:
                self.stopping.best_weights = [
                    self.kept[name] for name in sorted(weights, key=int)
                ]

    def on_epoch_end(self, epoch, logs=None):
        """Keep the state, and that of the epoch before."""
        stopping = self.stopping
        best = np.nan if stopping.best is None else stopping.best
        state = {"best": best, "wait": stopping.wait, "epoch": stopping.best_epoch}
        weights = enumerate(stopping.best_weights or ())
        with whole(self._path(epoch + 1)) as part:
            np.savez(part, **state, **{str(i): each for i, each in weights})
        self._path(epoch - 1).unlink(missing_ok=True)
