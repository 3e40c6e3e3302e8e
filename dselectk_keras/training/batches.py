"""Training batches in an order that the seed decides."""

import keras
import numpy as np


class Batches(keras.utils.PyDataset):
    """Batches of a split, shuffled anew every epoch, the same on every backend.

    Keras' own shuffling of arrays depends on the backend, and on TensorFlow with a
    global seed it repeats one order in every epoch.

    Args:
        data: A `datasets.Split`, or a tuple of inputs, labels and, if there are any,
            sample weights.
        batch_size: Examples in a batch; the last may have fewer.
        seed: Of the orders.
        **kwargs: The arguments of `keras.utils.PyDataset`.
    """

    def __init__(self, data, batch_size, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.data = tuple(data)
        self.batch_size = batch_size
        self._num_samples = len(keras.tree.flatten(self.data)[0])
        self._rng = np.random.default_rng(seed)
        self.shuffle()

    @property
    def num_batches(self):
        """How many batches make an epoch."""
        return -(-self._num_samples // self.batch_size)

    def __getitem__(self, index):
        """The inputs and labels of a batch."""
        if index == self.num_batches - 1:
            self._used = True
        chosen = self.order[index * self.batch_size : (index + 1) * self.batch_size]
        return keras.tree.map_structure(lambda array: array[chosen], self.data)

    def on_epoch_end(self):
        """Shuffle, after an epoch."""
        # Keras calls this before the first epoch too, on some backends, and may have
        # looked at a batch by then.
        if self._used:
            self.shuffle()

    def shuffle(self):
        """Draw the next order."""
        self.order = self._rng.permutation(self._num_samples)
        self._used = False
