"""Backups of a training that no kill can damage."""

import pathlib

import keras

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
