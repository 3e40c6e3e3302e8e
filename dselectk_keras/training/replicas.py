"""The results of training many copies of one architecture."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from dselectk_keras.callbacks import GateHistory
from dselectk_keras.training.copies import Copy
from dselectk_keras.utils import optional_import


class Replicas:
    """The results of `replicate`: tables, gate histories, and models.

    The status of a copy is `"finished"` after all epochs, `"stopped"` if it stopped
    early, and `"failed"` if its loss was not finite. Its weights are those of its best
    epoch by the monitored result, or of its last epoch without one.

    Args:
        build: The function that makes the models.
        copies: A list of trained copies.
        batch: A batch, for its shapes.

    Example:
        >>> def build(seed, learning_rate):
        ...     model = build_multitask_model(3, ["a"], gate=DSelectKGate(2))
        ...     model.compile(keras.optimizers.Adam(learning_rate))
        ...     return model
        >>> runs = replicate(
        ...     build,
        ...     (np.ones((8, 3)), np.ones((8, 1))),
        ...     seeds=range(2),
        ...     settings={"learning_rate": [0.1, 0.01]},
        ...     verbose=0,
        ... )
        >>> runs.model(1).tasks
        (Task('a', 'regression'),)
    """

    def __init__(self, build: Callable, copies: list[Copy], batch: Any) -> None:
        self.build = build
        self.copies = copies
        self._batch = batch

    @property
    def table(self) -> Any:
        """A pandas data frame with a row per copy and epoch.

        Its columns are `copy`, `seed`, the settings, `epoch` (from 0, as in Keras'
        `History`) and the results, under the names that `fit` gives them.
        """
        return _data_frame(
            {**_labels(copy), "epoch": epoch, **logs}
            for copy in self.copies
            for epoch, logs in enumerate(copy.logs)
        )

    @property
    def summary(self) -> Any:
        """A pandas data frame with a row per copy.

        Its columns are `copy`, `seed`, the settings, `status`, `epochs`, `best_epoch`
        and the results of that epoch.
        """
        return _data_frame(
            {
                **_labels(copy),
                "status": copy.status,
                "epochs": len(copy.logs),
                "best_epoch": copy.best_epoch,
                **copy.logs[copy.best_epoch],
            }
            for copy in self.copies
        )

    @property
    def histories(self) -> dict[int, GateHistory]:
        """The gate histories of the recorded copies, by index of the copy."""
        return {
            copy.number: copy.recorder.history
            for copy in self.copies
            if copy.recorder is not None
        }

    @property
    def best(self) -> int:
        """The index of the copy with the best monitored result."""
        stopping = self.copies[0].stopping
        if stopping.monitor is None:
            raise ValueError(
                "The best copy is defined by a monitored result, such as "
                'monitor="val_loss" in `replicate`. Received: monitor=None.'
            )
        values = [
            stopping.sign * copy.logs[copy.best_epoch][stopping.monitor]
            for copy in self.copies
        ]
        if np.isnan(values).all():
            raise ValueError(
                f"There is no best copy: {stopping.monitor!r} is NaN in all of them."
            )
        return int(np.nanargmin(values))

    def model(self, copy: int | None = None) -> keras.Model:
        """The trained model of a copy. This sets Keras' seed, as `replicate` does.

        Args:
            copy: The index of the copy; `None` is the best one.

        Returns:
            A compiled Keras model.
        """
        chosen = self.copies[self.best if copy is None else copy]
        model = chosen.build_model(self.build, self._batch)
        chosen.load_weights(model)
        return model

    def __len__(self) -> int:
        """The number of copies."""
        return len(self.copies)


def _labels(copy):
    return {"copy": copy.number, "seed": copy.seed, **copy.settings}


def _data_frame(rows: Iterable[dict]) -> Any:
    pandas = optional_import("pandas", extra="data", purpose="A table of `Replicas`")
    return pandas.DataFrame(list(rows))
