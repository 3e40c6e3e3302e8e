"""Noise in the shape of real data, to test that an experiment runs."""

import numpy as np

from dselectk_keras.datasets import Dataset, Split


def stand_in(shape, tasks, size=96, seed=0):
    """Make a `Dataset` of noise, which needs no file.

    Args:
        shape: The shape of an example.
        tasks: A dict from the tasks' names to their kinds: `"regression"`, `"binary"`
            or a number of classes.
        size: The number of examples in each split.
        seed: Seed of the noise.

    Example:
        >>> data = stand_in((28, 28), {"digit": 10})
        >>> data.train.x.shape, data.task_kinds
        ((96, 28, 28), ('multiclass',))
    """
    rng = np.random.default_rng(seed)

    def split():
        labels = [
            rng.normal(size=size)
            if kind == "regression"
            else rng.integers(2 if kind == "binary" else kind, size=size)
            for kind in tasks.values()
        ]
        x = rng.uniform(size=(size, *shape)).astype("float32")
        return Split(x, np.stack(labels, axis=1).astype("float32"))

    classes = tuple(None if isinstance(kind, str) else kind for kind in tasks.values())
    kinds = tuple(k if isinstance(k, str) else "multiclass" for k in tasks.values())
    parts = split(), split(), split()
    return Dataset(*parts, tuple(tasks), kinds, num_classes=classes)
