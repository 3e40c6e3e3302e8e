"""A tensor in slices."""

from keras import ops


def unstacked(x, axis):
    """The slices of a tensor along an axis, as a list.

    Not `unstack`, which on JAX has a gradient that adds up n whole tensors.
    """
    return [ops.squeeze(each, axis) for each in ops.split(x, x.shape[axis], axis)]
