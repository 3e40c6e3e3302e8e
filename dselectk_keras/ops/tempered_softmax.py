"""Softmax with a temperature that may approach 0."""

from keras import ops

from dselectk_keras.ops.softmax import softmax
from dselectk_keras.utils import Tensor

# At tied logits the gradient is of the order of 1 / temperature and must not overflow.
MIN_TEMPERATURE = 1e-16


def tempered_softmax(logits: Tensor, temperature: Tensor, axis: int = -1) -> Tensor:
    r"""Softmax of logits divided by a temperature, finite at any temperature.

    $$
    \mathrm{softmax}(v / \tau)_i = \frac{e^{v_i / \tau}}{\sum_j e^{v_j / \tau}}
    $$

    Temperatures below $10^{-16}$ are replaced by it. There the result is one-hot for
    all float32 logits that differ, with a gradient of exactly 0. Tied logits share
    their weight equally, with a finite gradient of the order of $1/\tau$.

    Args:
        logits: Tensor; minus infinity gives a weight of exactly 0.
        temperature: $\tau$: a positive number or a scalar tensor.
        axis: The axis along which the result sums to one.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> np.asarray(tempered_softmax([1.0, 2.0, 2.0], 1e-16)).tolist()
        [0.0, 0.5, 0.5]
    """
    logits = ops.cast(logits, "float32")
    temperature = ops.maximum(ops.cast(temperature, "float32"), MIN_TEMPERATURE)
    # Subtract the largest before dividing, so that no quotient overflows.
    largest = ops.stop_gradient(ops.max(logits, axis=axis, keepdims=True))
    return softmax((logits - largest) / temperature, axis=axis)
