"""Which entry is the largest."""

import numpy as np
from keras import ops

from dselectk_keras.utils import Tensor


def first_largest(x: Tensor) -> Tensor:
    r"""Find the largest entry along the last axis; of equal entries, the first.

    $$
    \mathrm{FirstLargest}(x)_i = 1\bigl[i = \min \{j : x_j = \max_l x_l\}\bigr]
    $$

    It has no gradient. With NaN among the entries, none is the largest.

    Args:
        x: Tensor `(..., n)`.

    Returns:
        A boolean tensor of the shape of `x`.

    Example:
        >>> np.asarray(first_largest([1.0, 3.0, 3.0])).tolist()
        [False, True, False]
    """
    # Not `ops.argmax`: TensorFlow's cannot be exported to ONNX or LiteRT, and JAX's
    # takes up to six times as long.
    x = ops.convert_to_tensor(x)
    n = x.shape[-1]
    places = np.arange(n, dtype="int32")
    largest = x == ops.amax(x, axis=-1, keepdims=True)
    first = ops.amin(ops.where(largest, places, n), axis=-1, keepdims=True)
    return places == first
