"""Which entry is the largest."""

import keras
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
        >>> found = first_largest([1.0, 3.0, 3.0])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [False, True, False]
    """
    # Not `ops.argmax`: TensorFlow's cannot be exported, and JAX's takes 6 times longer.
    x = ops.convert_to_tensor(x)
    # The first place is the largest one if places are counted from the end.
    places = ops.arange(x.shape[-1], 0, -1, dtype="float32")
    found = places * ops.cast(x == largest(x), "float32")
    return ops.logical_and(found > 0, found == largest(found))


def largest(x: Tensor, axis: int = -1) -> Tensor:
    """Find the largest value along an axis, which is kept, also of an empty batch."""
    if keras.backend.backend() == "tensorflow":
        # Without an initial value it refuses an empty batch. Torch refuses it with one.
        dtype = keras.backend.standardize_dtype(x.dtype)
        is_int = keras.backend.is_int_dtype(dtype)
        lowest = np.iinfo(dtype).min if is_int else -np.inf
        return ops.max(x, axis=axis, keepdims=True, initial=lowest)
    return ops.amax(x, axis=axis, keepdims=True)
