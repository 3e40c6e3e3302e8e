"""What many runs of one architecture have given."""

import numpy as np

from dselectk_keras.training.copies import weights_of
from dselectk_keras.utils import optional_import


class Replicas:
    """The results of `replicate`: tidy tables, gate histories, and models.

    A copy has `"finished"` all its epochs, or `"stopped"` early, or `"failed"` with a
    loss that is not a finite number. Its weights are those of its best epoch by what
    was monitored, or of its last if nothing was.

    Args:
        build: The function that makes the models.
        copies: A list of copies that have ended.
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

    def __init__(self, build, copies, batch):
        self.build = build
        self.copies = copies
        self._batch = batch

    @property
    def table(self):
        """A pandas frame: a row for each epoch of each copy.

        Its columns are `copy`, `seed`, the settings, `epoch` (from 0, as in Keras'
        `History`) and the results, under the names that `fit` gives them.
        """
        return _frame(
            {**_who(copy), "epoch": epoch, **logs}
            for copy in self.copies
            for epoch, logs in enumerate(copy.logs)
        )

    @property
    def summary(self):
        """A pandas frame: a row for each copy.

        Its columns are `copy`, `seed`, the settings, `status`, `epochs`, `best_epoch`
        and the results of that epoch.
        """
        return _frame(
            {
                **_who(copy),
                "status": copy.status,
                "epochs": len(copy.logs),
                "best_epoch": copy.best_epoch,
                **copy.logs[copy.best_epoch],
            }
            for copy in self.copies
        )

    @property
    def histories(self):
        """A dict of `GateHistory` by copy, for the copies whose gates are recorded."""
        return {
            copy.number: copy.recorder.history
            for copy in self.copies
            if copy.recorder is not None
        }

    @property
    def best(self):
        """The number of the copy with the best value of what was monitored."""
        stopping = self.copies[0].stopping
        if stopping.monitor is None:
            raise ValueError(
                "Which copy is best is a matter of what was monitored. Received: "
                'monitor=None. Call `replicate` with monitor="val_loss", say.'
            )
        values = [
            stopping.sign * copy.logs[copy.best_epoch][stopping.monitor]
            for copy in self.copies
        ]
        if np.isnan(values).all():
            raise ValueError(
                f"There is no best copy: {stopping.monitor!r} is not a number in any."
            )
        return int(np.nanargmin(values))

    def model(self, copy=None):
        """The trained model of a copy. This seeds Keras, as `replicate` does.

        Args:
            copy: Its number; `None` is the best one.

        Returns:
            An ordinary compiled Keras model.
        """
        chosen = self.copies[self.best if copy is None else copy]
        model = chosen.build(self.build, self._batch)
        for variable, value in zip(weights_of(model), chosen.weights, strict=True):
            variable.assign(value)
        return model

    def __len__(self):
        """The number of copies."""
        return len(self.copies)


def _who(copy):
    return {"copy": copy.number, "seed": copy.seed, **copy.settings}


def _frame(rows):
    pandas = optional_import("pandas", extra="data", purpose="A table of `Replicas`")
    return pandas.DataFrame(list(rows))
