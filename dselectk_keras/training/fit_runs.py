"""Copies trained by `fit`, one after another, on any backend."""

import keras
import numpy as np

from dselectk_keras.training.batches import Batches
from dselectk_keras.training.copies import checked_models, weights_of
from dselectk_keras.training.memory import check_memory, free_memory


class FitRuns:
    """The runs of all copies, prepared and then carried out.

    Args:
        build: The function that makes the models.
        copies: A list of `Copy`.
        data: A `Data`.
        recorded: The numbers of the copies whose gates are recorded.
    """

    def __init__(self, build, copies, data, recorded):
        self.build = build
        self.copies = copies
        self.data = data
        self._one = self._weights = 0
        for _, model in checked_models(build, copies, data, recorded):
            self._weights = _num_bytes(weights_of(model))
            self._one = self._weights + _num_bytes(model.optimizer.variables)

    def plan(self, vectorize, memory_limit):
        """See that the copies fit into memory.

        Args:
            vectorize: Not used: there is one copy at a time.
            memory_limit: In bytes; `None` is what is free.

        Returns:
            The estimate of the memory needed, in bytes: of data, variables and
            gradients, without what the layers hold meanwhile.
        """
        count = len(self.copies)
        needed = count * self._weights + 2 * self._one + self.data.num_bytes
        limit = free_memory() if memory_limit is None else memory_limit
        check_memory(needed, limit, f"{count} copies, one at a time,")
        return needed

    def run(self, progress):
        """Train all copies.

        Args:
            progress: A `Progress`.
        """
        data = self.data
        for copy in self.copies:
            copy.build(self.build, data.first_batch).fit(
                Batches(data.train, data.batch_size, copy.seed),
                validation_data=data.validation,
                validation_batch_size=data.batch_size,
                epochs=copy.stopping.epochs,
                shuffle=False,
                callbacks=[_Follow(copy, data.probe, progress)],
                verbose=0,
            )


class _Follow(keras.callbacks.Callback):
    """Tells a copy of its epochs, and stops when it has ended."""

    def __init__(self, copy, probe, progress):
        super().__init__()
        self.copy = copy
        self.probe = probe
        self.progress = progress

    def on_train_begin(self, logs=None):
        if self.copy.recorder is not None:
            # Anew: this is another model than the one that was checked.
            self.copy.record(self.model, self.probe)

    def on_epoch_end(self, epoch, logs=None):
        def weights():
            return [
                np.array(keras.ops.convert_to_numpy(v)) for v in weights_of(self.model)
            ]

        logs = {name: float(value) for name, value in (logs or {}).items()}
        self.model.stop_training = self.copy.end_epoch(logs, weights)
        if self.copy.recorder is not None:
            self.copy.recorder.on_epoch_end(epoch)
        self.progress.end_epoch(self.copy)


def _num_bytes(variables):
    sizes = [keras.backend.standardize_dtype(v.dtype) for v in variables]
    return sum(
        np.prod(v.shape, dtype=int) * (4 if "32" in size else 2 if "16" in size else 8)
        for v, size in zip(variables, sizes, strict=True)
    )
