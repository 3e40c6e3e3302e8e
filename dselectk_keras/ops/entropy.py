"""Entropy."""

from collections.abc import Sequence

from keras import ops

from dselectk_keras.utils import Tensor


def entropy(
    probabilities: Tensor, axis: int | Sequence[int] = -1, epsilon: float = 1e-6
) -> Tensor:
    r"""Entropy in nats.

    $$
    H(p) = -\sum_i p_i \log(p_i + \epsilon)
    $$

    Args:
        probabilities: Tensor of non-negative values.
        axis: The axis, or axes, to sum over.
        epsilon: Keeps the logarithm finite at 0. With the default, that of the
            original release, the entropy of a one-hot vector is about -1e-6, not 0.

    Returns:
        A float32 tensor without the axes summed over.

    Example:
        >>> round(float(entropy([0.5, 0.5], epsilon=0.0)), 6)
        0.693147

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.3.
    """
    p = ops.cast(probabilities, "float32")
    # The lower bound makes 0 log 0 zero when epsilon is 0.
    log = ops.log(ops.maximum(ops.relu(p) + epsilon, 1e-30))
    return -ops.sum(p * log, axis=axis)
