"""Entropy without an epsilon, to any base."""

import math

import numpy as np
from keras import ops

TINY = float(np.finfo("float32").tiny)


def check_base(base):
    """Raise an error for an invalid base of a logarithm.

    Args:
        base: A number above 1.
    """
    number = isinstance(base, int | float) and not isinstance(base, bool)
    if not (number and 1 < base < math.inf):
        raise ValueError(
            "`base` must be a finite number greater than 1. Received: "
            f"base={base!r}. Pass 2 for bits, or math.e for nats."
        )


def exact_entropy(probabilities, base, axis=-1):
    r"""Entropy, with $0 \log 0 = 0$ exactly.

    $$
    H(p) = -\sum_i p_i \log_b p_i
    $$

    Args:
        probabilities: Float32 tensor of non-negative values.
        base: The base $b$ of the logarithm.
        axis: The axis, or axes, to sum over.

    Returns:
        A float32 tensor without the axes summed over.
    """
    p = probabilities
    # Not a negation, which would give -0.0 for 0.
    return 0.0 - ops.sum(p * safe_log(p), axis=axis) / math.log(base)


def safe_log(x):
    """The natural logarithm, but 0 where `x` is 0.

    Args:
        x: Float32 tensor.

    Returns:
        A float32 tensor; NaN where `x` is.
    """
    # Some devices flush numbers below `TINY` to zero.
    return ops.log(ops.where(x < TINY, 1.0, x))
