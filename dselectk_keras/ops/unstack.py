"""Split a tensor into slices."""

from keras import ops

from dselectk_keras.utils import Tensor


def unstack(x: Tensor, axis: int) -> list[Tensor]:
    """The slices of a tensor along an axis, with a gradient that is fast on JAX.

    There the gradient of `keras.ops.unstack` adds up n whole tensors.

    Args:
        x: Tensor with a static size along `axis`.
        axis: The axis that the slices lack.

    Returns:
        A list of tensors.

    Example:
        >>> columns = unstack(np.eye(2), axis=1)
        >>> [keras.ops.convert_to_numpy(each).tolist() for each in columns]
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return [ops.squeeze(each, axis) for each in ops.split(x, int(x.shape[axis]), axis)]
