"""Entropy."""

from keras import ops


def entropy(probabilities, axis=-1, epsilon=1e-6):
    r"""Entropy in nats.

    $$
    H(p) = -\sum_i p_i \log(p_i + \epsilon)
    $$

    Args:
        probabilities: Tensor of non-negative values.
        axis: The axis, or axes, to sum over.
        epsilon: Keeps the logarithm finite at 0. The default is the original
            release's; it makes the entropy of a one-hot vector a negative
            rounding error, about -1e-6, instead of 0.

    Returns:
        A float32 tensor without the axes summed over.

    Example:
        >>> round(float(entropy([0.5, 0.5], epsilon=0.0)), 6)
        0.693147

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.
    """
    p = ops.cast(probabilities, "float32")
    # The tiny floor keeps 0 log 0 at 0 when epsilon is 0.
    log = ops.log(ops.maximum(ops.relu(p) + epsilon, 1e-30))
    return -ops.sum(p * log, axis=axis)
