"""An endless stream of data of a simulated recommender."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Split
from dselectk_keras.utils import check_count, optional_import

INPUT_DIM = 20  # 8 features of the user, 8 of the item and 4 of the situation.
TASKS = {
    # name: kind, group (0 is engagement, 1 satisfaction), share of positive labels
    "click": ("binary", 0, 0.3),
    "save": ("binary", 0, 0.1),
    "share": ("binary", 0, 0.02),
    "comment": ("binary", 0, 0.005),
    "engagement_time": ("regression", 0, None),
    "satisfied": ("binary", 1, 0.6),
    "like": ("binary", 1, 0.05),
    "rating": ("regression", 1, None),
}
KINDS, GROUPS, RATES = zip(*TASKS.values(), strict=True)
_BINARY = np.array(KINDS) == "binary"
SHARDS = 3  # The first integer in the path of the random streams of all shards.
_INTERESTS = 4  # Per group, and common to both groups.
_SIGNAL = 2.0  # Standard deviation of the predictable part of a utility.
_UTILITY_STD = np.sqrt(_SIGNAL**2 + np.pi**2 / 3)


class Recommender:
    """The recommender of one seed."""

    def __init__(self, seed):
        self.seed = seed
        rng = sampling.random_stream(seed, 1)
        self.user, self.item = rng.standard_normal((2, 8, 3 * _INTERESTS)) / np.sqrt(8)
        # A part common to all tasks, one per group, and one per task.
        parts = [
            rng.standard_normal((3 * _INTERESTS + 4, n)) for n in (1, 2, len(TASKS))
        ]
        self.weights = parts[0] + parts[1][:, GROUPS] + parts[2]
        for group in (0, 1):
            others = np.array(GROUPS) != group
            self.weights[group * _INTERESTS : (group + 1) * _INTERESTS, others] = 0
        self.mean, self.scale, self.biases = 0.0, 1.0, 0.0
        measured = self.utilities(sampling.calibration_inputs(seed, INPUT_DIM))
        self.mean, self.scale = measured.mean(axis=0), measured.std(axis=0) / _SIGNAL
        rates = np.array([rate or 0.5 for rate in RATES])
        biases = _find_biases((measured - self.mean) / self.scale, rates)
        self.biases = np.where(_BINARY, biases, 0.0)

    def utilities(self, x):
        """The predictable part of the utilities (samples, tasks)."""
        user, item, situation = np.split(x, [8, 16], axis=1)
        interests = (user @ self.user) * (item @ self.item)
        raw = np.concatenate([interests, situation], axis=1) @ self.weights
        return (raw - self.mean) / self.scale + self.biases

    def batches(self, batch_size, *path):
        """An endless iterator of batches, from the random streams below a path."""
        x_rng = sampling.random_stream(self.seed, *path, 0)
        noise_rng = sampling.random_stream(self.seed, *path, 1)
        while True:
            x = x_rng.standard_normal((batch_size, INPUT_DIM))
            utilities = self.utilities(x) + noise_rng.logistic(
                size=(batch_size, len(TASKS))
            )
            y = np.where(_BINARY, utilities > 0, utilities / _UTILITY_STD)
            yield Split(x.astype("float32"), y.astype("float32"))


def _find_biases(logits, rates):
    """The biases that give the rates of positive labels, by bisection."""
    low, high = np.full(len(rates), -50.0), np.full(len(rates), 50.0)
    for _ in range(50):
        middle = (low + high) / 2
        too_low = (1 / (1 + np.exp(-logits - middle))).mean(axis=0) < rates
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return low


@dataclasses.dataclass(frozen=True)
class RecommenderStream:
    """The data of `recommender_sim` as an endless stream, in shards.

    Every iteration over a shard gives the same batches, and no two shards share an
    example: give each worker its own shard. The training split of `recommender_sim` is
    the beginning of shard 0.

    Args:
        batch_size: Examples in a batch.
        shard: Non-negative integer, the index of the shard.
        seed: Non-negative integer; determines the problem, as in `recommender_sim`.

    Example:
        >>> stream = RecommenderStream(batch_size=32, shard=1)
        >>> x, y = next(iter(stream))
        >>> x.shape, y.shape
        ((32, 20), (32, 8))
    """

    batch_size: int = 256
    shard: int = 0
    seed: int = 0

    def __post_init__(self):
        """Check the fields."""
        check_count("batch_size", self.batch_size)
        check_count("shard", self.shard, minimum=0)
        check_count("seed", self.seed, minimum=0)

    def __iter__(self) -> Iterator[Split]:
        """The batches of the shard from its beginning."""
        return Recommender(self.seed).batches(self.batch_size, SHARDS, self.shard)

    def as_tf_data(self) -> Any:
        """The batches as an endless `tf.data.Dataset`, for `fit(steps_per_epoch=...)`.

        Returns:
            A `tf.data.Dataset` of pairs of inputs and labels.
        """
        tf = optional_import("tensorflow", extra="tensorflow", purpose="`as_tf_data`")
        signature = tuple(
            tf.TensorSpec((self.batch_size, width), "float32")
            for width in (INPUT_DIM, len(TASKS))
        )
        batches = tf.data.Dataset.from_generator(
            lambda: map(tuple, self), output_signature=signature
        )
        return batches.prefetch(tf.data.AUTOTUNE)
