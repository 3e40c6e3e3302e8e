"""Training batches in an order that the seed decides."""

import keras
import numpy as np


class Batches(keras.utils.PyDataset):
    """Batches of a split, shuffled anew every epoch, the same on every backend.

    Keras' own shuffling of arrays depends on the backend, and on TensorFlow with a
    global seed it repeats one order in every epoch.

    Args:
        split: A `datasets.Split`.
        batch_size: Examples in a batch; the last may have fewer.
        seed: Of the orders.
        **kwargs: The arguments of `keras.utils.PyDataset`.
    """

    def __init__(self, split, batch_size, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.split = split
        self.batch_size = batch_size
        self._rng = np.random.default_rng(seed)
        self.on_epoch_end()

    @property
    def num_batches(self):
        """How many batches make an epoch."""
        return -(-len(self.split.x) // self.batch_size)

    def __getitem__(self, index):
        """The inputs and labels of a batch."""
        chosen = self._order[index * self.batch_size : (index + 1) * self.batch_size]
        return keras.tree.map_structure(
            lambda array: array[chosen], (self.split.x, self.split.y)
        )

    def on_epoch_end(self):
        """Shuffle."""
        self._order = self._rng.permutation(len(self.split.x))
