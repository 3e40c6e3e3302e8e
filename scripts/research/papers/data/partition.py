"""Random splits of the examples of a data set."""

import numpy as np

from dselectk_keras.datasets.sampling import random_stream
from dselectk_keras.utils import check_count


def partition(rng, num_samples, **sizes):
    """Indices of disjoint random parts, in the order of the sizes.

    At most one size may be `None`: that part takes the rest.
    """
    requested = sum(check_count(*item) for item in sizes.items() if item[1] is not None)
    rest = num_samples - requested
    if rest < (None in sizes.values()):
        raise ValueError(
            f"There are {num_samples:,} examples to split. Received: "
            f"{', '.join(f'{name}={size}' for name, size in sizes.items())}. "
            "Ask for fewer."
        )
    counts = [rest if size is None else size for size in sizes.values()]
    order = rng.permutation(num_samples)
    return np.split(order, np.cumsum(counts))[: len(counts)]


def split_indices(seed, num_train_examples, num_test_examples, sizes):
    """Indices of the splits, with validation held out of the training examples."""
    rng = random_stream(seed, 0)
    train, validation, test = sizes
    return (
        *partition(rng, num_train_examples, num_train=train, num_validation=validation),
        *partition(rng, num_test_examples, num_test=test),
    )
