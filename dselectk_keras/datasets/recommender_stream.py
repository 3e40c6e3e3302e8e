"""An endless stream of data of a simulated recommender."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from dselectk_keras.datasets._recommender import INPUT_DIM, TASKS, Recommender
from dselectk_keras.datasets.split import Split
from dselectk_keras.utils import check_count, optional_import

SHARDS = 3  # The first integer in the path of the random streams of all shards.


@dataclasses.dataclass(frozen=True)
class RecommenderStream:
    """The data of `recommender_sim` as an endless stream, in shards.

    Every iteration over a shard gives the same batches, and no two shards share an
    example: give each worker its own shard. The training split of `recommender_sim` is
    the beginning of shard 0.

    Args:
        batch_size: examples in a batch. Defaults to `256`.
        shard: non-negative integer, the index of the shard. Defaults to `0`.
        seed: non-negative integer; determines the problem, as in `recommender_sim`.
            Defaults to `0`.

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
