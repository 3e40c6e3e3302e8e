"""Squared distances between all pairs of examples."""

from keras import ops


def squared_distances(x):
    r"""Squared Euclidean distances between the rows of a matrix.

    $$
    D_{ij} = \lVert x_i - x_j \rVert^2 = \lVert x_i \rVert^2 + \lVert x_j \rVert^2
    - 2 \, x_i^\top x_j
    $$

    with the mean taken off first, which loses fewer digits. Nothing larger than
    the result is formed.

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
    # Not twice the products: some processors round them unlike on the two sides.
    doubled = products + ops.transpose(products)
    return ops.relu(squares[:, None] + squares[None, :] - doubled)
