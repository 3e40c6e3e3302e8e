"""Softmax that also accepts a single expert or selector."""

from keras import ops

from dselectk_keras.utils import Tensor


def softmax(logits: Tensor, axis: int = -1) -> Tensor:
    r"""Softmax in float32, also along an axis of length one.

    $$
    \mathrm{softmax}(v)_i = \frac{e^{v_i}}{\sum_j e^{v_j}}
    $$

    `keras.ops.softmax` warns about an axis of length one, where the result is 1 and
    the gradient 0. Gates have such an axis with one selector or one expert.

    Args:
        logits: Tensor; minus infinity gives a weight of exactly 0.
        axis: The axis along which the result sums to one.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> np.asarray(softmax([0.0, 0.0, -float("inf")])).tolist()
        [0.5, 0.5, 0.0]
    """
    logits = ops.cast(logits, "float32")
    if logits.shape[axis] == 1:
        return ops.exp(ops.log_softmax(logits, axis=axis))
    return ops.softmax(logits, axis=axis)
