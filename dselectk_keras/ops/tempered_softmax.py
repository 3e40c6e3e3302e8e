"""Softmax at a temperature that may fall to nothing."""

from keras import ops

from dselectk_keras.ops.softmax import softmax

# Below, a gradient at tied logits, of the order of its reciprocal, could overflow.
COLDEST = 1e-16


def tempered_softmax(logits, temperature, axis=-1):
    r"""Softmax of logits over a temperature, finite however cold it gets.

    $$
    \mathrm{softmax}(v / \tau)_i = \frac{e^{v_i / \tau}}{\sum_j e^{v_j / \tau}}
    $$

    Temperatures below $10^{-16}$ count as that. There the result is one-hot for all
    float32 logits that differ, with a gradient of exactly 0. Tied ones share their
    weight equally, with a gradient of the order of $1/\tau$: huge, but finite.

    Args:
        logits: Tensor; minus infinity stands for a weight of exactly 0.
        temperature: $\tau$: a positive number or a scalar tensor.
        axis: The axis along which the result sums to one.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> np.asarray(tempered_softmax([1.0, 2.0, 2.0], 1e-16)).tolist()
        [0.0, 0.5, 0.5]
    """
    logits = ops.cast(logits, "float32")
    temperature = ops.maximum(ops.cast(temperature, "float32"), COLDEST)
    # Before the division: what is left of the largest is 0, which cannot overflow.
    largest = ops.stop_gradient(ops.max(logits, axis=axis, keepdims=True))
    return softmax((logits - largest) / temperature, axis=axis)
