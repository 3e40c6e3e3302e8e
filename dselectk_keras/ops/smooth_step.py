"""The smooth-step function."""

import numbers

from keras import ops

from dselectk_keras.utils import Tensor, check_number


def smooth_step(x: Tensor, gamma: Tensor = 1.0) -> Tensor:
    r"""A cubic S-curve that is exactly 0 and exactly 1 outside a band.

    $$
    S(x) = u^2 (3 - 2u), \qquad
    u = \min\bigl(1, \max(0, x / \gamma + 1/2)\bigr)
    $$

    Written in $x$, the middle piece is
    $-\frac{2}{\gamma^3} x^3 + \frac{3}{2\gamma} x + \frac12$. The factored form
    keeps every value inside [0, 1] and every derivative finite in float32.

    Args:
        x: Tensor of any shape.
        gamma: Width of the band in which the curve is strictly between 0 and 1; a
            positive number or a scalar tensor. As it goes to 0, the curve becomes a
            step.

    Returns:
        A float32 tensor of the shape of `x`, with values in [0, 1].

    Example:
        >>> found = smooth_step([-0.5, 0.0, 0.25, 0.5])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.0, 0.5, 0.84375, 1.0]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.3 and Appendix
        B.3.
    """
    if isinstance(gamma, numbers.Real) or not hasattr(gamma, "shape"):
        gamma = check_number("gamma", gamma, above=0)
    x = ops.cast(x, "float32")
    gamma = ops.maximum(ops.cast(gamma, "float32"), 1e-7)
    u = ops.clip(x / gamma + 0.5, 0.0, 1.0)
    return u * u * (3.0 - 2.0 * u)
