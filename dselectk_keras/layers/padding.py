"""Padding: positions of a tensor that do not count."""

from typing import Any, NamedTuple

from keras import ops

from dselectk_keras._keras import with_mask
from dselectk_keras.utils import Shape, Tensor


class Padding(NamedTuple):
    """The positions of a tensor that count.

    Args:
        mask: Booleans for the leading axes, `(batch,)`, `(batch, length)` or more;
            `None` if all positions count.
    """

    mask: Any = None

    def clear(self, x: Tensor) -> Tensor:
        """Set padding to zero, so that nothing depends on it.

        A mask of tokens is attached to the result, for layers inside of this one.
        """
        if self.mask is None or len(self.mask.shape) > len(x.shape):
            return x
        x, mask = ops.convert_to_tensor(x), ops.cast(self.mask, "bool")
        x = ops.where(self._along(mask, x), x, ops.zeros((), x.dtype))
        if len(mask.shape) == 1:
            return x
        # The mean over a sequence of padding alone would be 0 / 0.
        axes = list(range(1, len(mask.shape)))
        empty = ops.logical_not(ops.any(mask, axis=axes, keepdims=True))
        return with_mask(x, ops.logical_or(mask, empty))

    def together(self, mask: Tensor) -> "Padding":
        """Leave out what another mask leaves out, too."""
        if self.mask is None:
            return Padding(mask)
        own, mask = ops.cast(self.mask, "bool"), ops.cast(mask, "bool")
        if len(own.shape) < len(mask.shape):
            own, mask = mask, own
        return Padding(ops.logical_and(own, self._along(mask, own)))

    def valid(self, leading: Shape) -> Tensor:
        """Compute which positions of the leading axes, of these sizes, count.

        A sequence counts if any of its tokens does. Of an example that does not count,
        no token does.
        """
        if self.mask is None:
            return None
        mask = positions(ops.cast(self.mask, "bool"), leading)
        return ops.any(mask, axis=list(range(len(leading), len(mask.shape))))

    def mean(self, x: Tensor, own_axes: int = 1) -> Tensor:
        """Compute the mean over the axes between the batch and the last ones."""
        axes = list(range(1, len(x.shape) - own_axes))
        # The sum over a long sequence may overflow in half precision.
        x = ops.cast(x, "float32")
        if self.mask is None:
            return ops.mean(x, axis=axes)
        weights = self._along(ops.cast(self.mask, x.dtype), x)
        weights = ops.broadcast_to(weights, (*ops.shape(x)[:-1], 1))
        total = ops.maximum(ops.sum(weights, axis=axes), 1)
        return ops.sum(x * weights, axis=axes) / total

    @staticmethod
    def _along(mask, x):
        """Give a mask as many axes as a tensor has."""
        more = len(x.shape) - len(mask.shape)
        return ops.reshape(mask, (*ops.shape(mask), *[1] * more))


def positions(mask: Tensor, leading: Shape) -> Tensor:
    """Give a mask of fewer axes, such as one of examples, those of all positions."""
    if (more := len(leading) - len(mask.shape)) <= 0:
        return mask
    mask = ops.reshape(mask, (*ops.shape(mask), *[1] * more))
    return ops.broadcast_to(mask, leading)
