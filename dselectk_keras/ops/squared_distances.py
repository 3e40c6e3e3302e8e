"""Squared distances between all pairs of examples."""

from keras import ops

from dselectk_keras.utils import Tensor


def squared_distances(x: Tensor) -> Tensor:
    r"""Squared Euclidean distances between the rows of a matrix.

    $$
    D_{ij} = \lVert x_i - x_j \rVert^2 = \lVert x_i \rVert^2 + \lVert x_j \rVert^2
    - 2 \, x_i^\top x_j
    $$

    The mean is subtracted first, which loses fewer digits. No intermediate tensor is
    larger than the result.

    Args:
        x: Tensor `(batch, ...)`; further axes are flattened.

    Returns:
        A float32 tensor `(batch, batch)`, zero on the diagonal.

    Example:
        >>> np.asarray(squared_distances([[0.0, 0.0], [3.0, 4.0]])).tolist()
        [[0.0, 25.0], [25.0, 0.0]]
    """
    x = ops.cast(x, "float32")
    x = ops.reshape(x, (ops.shape(x)[0], -1))
    x = x - ops.mean(x, axis=0, keepdims=True)
    products = ops.matmul(x, ops.transpose(x))
    squares = ops.diagonal(products)
    # Not 2 * products: some processors round the two triangles differently.
    doubled = products + ops.transpose(products)
    return ops.relu(squares[:, None] + squares[None, :] - doubled)
