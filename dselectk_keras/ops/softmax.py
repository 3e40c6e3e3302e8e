"""Softmax over experts or selectors, of which there may be one."""

from keras import ops


def softmax(logits, axis=-1):
    r"""Softmax in float32, also along an axis of length one.

    $$
    \mathrm{softmax}(v)_i = \frac{e^{v_i}}{\sum_j e^{v_j}}
    $$

    Keras warns of an axis of length one, where the result is 1 and the gradient
    0. Here that is a gate with one selector, or a bank with one expert.

    Args:
        logits: Tensor; minus infinity stands for a weight of exactly 0.
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
