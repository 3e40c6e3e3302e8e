"""Train the copies with `fit`, one after another, on any backend."""

import keras
import numpy as np

from dselectk_keras.training.batches import Batches
from dselectk_keras.training.copies import build_models, prediction_variables
from dselectk_keras.training.memory import check_memory, free_memory


class FitRuns:
    """The training of all copies, first planned and then run.

    Args:
        build: The user's function that makes the models.
        copies: A list of `Copy`.
        data: A `Data`.
        recorded: The indices of the copies whose gates are recorded.
        decide: A `DecideGates`, or `None`.
    """

    def __init__(self, build, copies, data, recorded, decide=None):
        self.build = build
        self.copies = copies
        self.data = data
        self.decide = decide
        self._model_bytes = self._weight_bytes = 0
        for _, model in build_models(build, copies, data, recorded):
            weights, slots = prediction_variables(model), model.optimizer.variables
            self._weight_bytes = _num_bytes(weights)
            self._model_bytes = _num_bytes([*weights, *slots])

    def plan(self, vectorize, memory_limit):
        """Check that the copies fit in memory, and return the estimated bytes.

        These are data, variables and gradients, without the layers' activations.
        `vectorize` is not used: one copy is trained at a time.
        """
        count = len(self.copies)
        needed = count * self._weight_bytes + 2 * self._model_bytes
        needed += self.data.num_bytes
        limit = free_memory() if memory_limit is None else memory_limit
        check_memory(needed, limit, f"{count} copies, one at a time,")
        return needed

    def run(self, progress):
        """Train all copies."""
        data, decide = self.data, [self.decide] if self.decide else []
        for copy in self.copies:
            model = copy.build_model(self.build, data.first_batch)
            if copy.recorder is not None:
                # Again: this is not the model that `build_models` checked.
                copy.start_recorder(model, data.probe)
            model.fit(
                Batches(data.train, data.batch_size, copy.seed),
                validation_data=data.validation,
                validation_batch_size=data.batch_size,
                epochs=copy.stopping.epochs,
                shuffle=False,
                callbacks=[*decide, _CopyCallback(copy, progress)],
                verbose=0,
            )


class _CopyCallback(keras.callbacks.Callback):
    """Passes the results of each epoch to a copy, and stops when it has ended."""

    def __init__(self, copy, progress):
        super().__init__()
        self.copy = copy
        self.progress = progress

    def on_epoch_end(self, epoch, logs=None):
        def read_weights():
            return [
                np.array(keras.ops.convert_to_numpy(v))
                for v in prediction_variables(self.model)
            ]

        logs = {name: float(value) for name, value in (logs or {}).items()}
        self.model.stop_training = self.copy.end_epoch(logs, read_weights)
        if self.copy.recorder is not None:
            self.copy.recorder.on_epoch_end(epoch)
        self.progress.end_epoch(self.copy)


def _num_bytes(variables):
    return sum(
        np.prod(v.shape, dtype=int)
        * np.dtype(keras.backend.standardize_dtype(v.dtype)).itemsize
        for v in variables
    )
