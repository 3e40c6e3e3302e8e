"""Coefficient of variation."""

from keras import ops

from dselectk_keras.utils import Tensor


def coefficient_of_variation(x: Tensor, axis: int = -1) -> Tensor:
    r"""Standard deviation divided by the mean, with a gradient of 0 at perfect balance.

    $$
    \mathrm{CV}(x) = \frac{\sqrt{\frac1n \sum_i (x_i - \bar x)^2}}{\bar x}
    $$

    Args:
        x: Tensor of non-negative values.
        axis: The axis along which the values vary.

    Returns:
        A float32 tensor without `axis`.

    Example:
        >>> float(coefficient_of_variation([0.0, 2.0]))
        1.0

    Reference:
        Shazeer et al., "Outrageously Large Neural Networks" (ICLR 2017),
        Equation 7.
    """
    x = ops.cast(x, "float32")
    mean = ops.mean(x, axis=axis, keepdims=True)
    variance = ops.mean(ops.square(x - mean), axis=axis)
    # The derivative of the square root is infinite at 0: keep 0 away from it.
    spread = variance > 0
    deviation = ops.where(spread, ops.sqrt(ops.where(spread, variance, 1.0)), 0.0)
    return deviation / ops.maximum(ops.squeeze(mean, axis), 1e-9)
