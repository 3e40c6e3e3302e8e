"""Softmax of one expert or more, at any temperature."""

from keras import ops

from dselectk_keras.ops.first_largest import largest
from dselectk_keras.utils import Tensor

# At tied logits the gradient is of the order of 1 / temperature and must not overflow.
MIN_TEMPERATURE = 1e-16


def softmax(logits: Tensor, temperature: Tensor = None, axis: int = -1) -> Tensor:
    r"""Softmax in float32, also along an axis of length one, finite at any temperature.

    $$
    \mathrm{softmax}(v / \tau)_i = \frac{e^{v_i / \tau}}{\sum_j e^{v_j / \tau}}
    $$

    `keras.ops.softmax` warns about an axis of length one, where the result is 1 and
    the gradient 0. Gates have such an axis with one selector or one expert.

    Temperatures below $10^{-16}$ are replaced by it. There the result is one-hot for
    all float32 logits that differ, with a gradient of exactly 0. Tied logits share
    their weight equally, with a finite gradient of the order of $1/\tau$.

    Args:
        logits: Tensor; minus infinity gives a weight of exactly 0.
        temperature: $\tau$: a positive number or a scalar tensor; `None` is 1.
        axis: The axis along which the result sums to one.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> found = softmax([0.0, 0.0, -float("inf")])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.5, 0.5, 0.0]
        >>> found = softmax([1.0, 2.0, 2.0], temperature=1e-16)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.0, 0.5, 0.5]
    """
    logits = ops.cast(logits, "float32")
    if temperature is not None:
        temperature = ops.maximum(ops.cast(temperature, "float32"), MIN_TEMPERATURE)
        # Subtract the largest before dividing, so that no quotient overflows.
        logits = (logits - ops.stop_gradient(largest(logits, axis))) / temperature
    if logits.shape[axis] == 1:
        return ops.exp(ops.log_softmax(logits, axis=axis))
    return ops.softmax(logits, axis=axis)
