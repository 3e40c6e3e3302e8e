"""Keep the k largest weights."""

from keras import ops

from dselectk_keras.ops.keep_top_k import keep_top_k
from dselectk_keras.utils import Tensor


def keep_largest(weights: Tensor, k: int) -> Tensor:
    r"""Keep the k largest weights, and scale them up so that they sum to one.

    $$
    \mathrm{KeepLargest}(g, k)_i =
    \begin{cases} g_i \, / \sum_{j \in T} g_j & i \in T \\
    0 & \text{otherwise} \end{cases}
    $$

    where $T$ are the $k$ largest weights; of equal weights, the first.

    Args:
        weights: Tensor `(..., n)` of weights that are not negative, with at least one
            that is positive.
        k: How many to keep, at least 1; `n` or more keeps all.

    Returns:
        A float32 tensor of the shape of `weights`.

    Example:
        >>> found = keep_largest([0.1, 0.6, 0.2, 0.1], k=2)
        >>> keras.ops.convert_to_numpy(found).round(2).tolist()
        [0.0, 0.75, 0.25, 0.0]
    """
    weights = ops.cast(weights, "float32")
    kept = ops.where(keep_top_k(weights, k) > -float("inf"), weights, 0.0)
    return kept / ops.sum(kept, axis=-1, keepdims=True)
