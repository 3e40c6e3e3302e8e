"""Keep the k largest logits."""

from keras import ops

from dselectk_keras.ops.first_largest import first_largest, largest
from dselectk_keras.utils import Tensor, check_count

# For a larger k, sorting is faster than k passes.
_MOST_PASSES = 8


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    r"""Keep the k largest logits and set the others to minus infinity.

    $$
    \mathrm{KeepTopK}(v, k)_i =
    \begin{cases} v_i & v_i \text{ is among the } k \text{ largest of } v \\
    -\infty & \text{otherwise} \end{cases}
    $$

    so that a softmax of the result has exactly $k$ nonzero entries. Of equal logits
    the first are kept. With NaN among the logits, none is kept. Only the kept logits
    receive gradients.

    Args:
        logits: Tensor `(..., n)`.
        k: How many to keep, at least 1; `n` or more keeps all.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> found = keep_top_k([3.0, 1.0, 2.0], k=2)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [3.0, -inf, 2.0]

    Reference:
        Shazeer et al., "Outrageously Large Neural Networks" (ICLR 2017),
        Equation 5.
    """
    check_count("k", k)
    logits = ops.cast(logits, "float32")
    n = logits.shape[-1]
    if k >= n:
        return logits
    # Not `ops.top_k`: which of equal logits it returns depends on the backend.
    if k > _MOST_PASSES:
        kept = ops.argsort(-logits)[..., :k]
        mask = ops.any(ops.expand_dims(kept, -1) == ops.arange(n), axis=-2)
        # With NaN, no comparison holds.
        mask = ops.logical_and(mask, logits <= largest(logits))
        return ops.where(mask, logits, -float("inf"))
    left, mask = logits, False
    for _ in range(k):
        found = first_largest(left)
        left = ops.where(found, -float("inf"), left)
        mask = ops.logical_or(mask, found)
    return ops.where(mask, logits, -float("inf"))
