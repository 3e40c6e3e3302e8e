"""A layout of experts over devices."""

import keras

# `DenseExperts` has one kernel and one bias per layer, with the experts first.
STACKED = r"(.*/)?dense_experts(_\d+)?/(kernel|bias)_\d+"


def expert_layout_map(
    mesh: keras.distribution.DeviceMesh, axis: str | None = None
) -> keras.distribution.LayoutMap:
    """A layout in which each device holds some of the experts, for JAX.

    The kernels and biases of all layers `DenseExperts` are split between the experts,
    and so are the optimizer's variables. Gates, towers and everything else are copied
    to all devices. Add entries to the map to split these too. The number of experts
    must be divisible by the size of the axis.

    Layers are found by their path. A bank with a `name` of its own, such as
    `name="mine"`, needs an entry: `layout_map["mine/kernel_.*"] = (axis,)`. The experts
    of the bank `Experts` have separate variables, and cannot be split this way.

    Args:
        mesh: A `keras.distribution.DeviceMesh`.
        axis: The name of the mesh's axis that the experts are split over. `None` is
            its last axis.

    Returns:
        A `keras.distribution.LayoutMap`, for `keras.distribution.ModelParallel`.

    Example:
        >>> devices = np.array(["cpu:0"])
        >>> mesh = keras.distribution.DeviceMesh((1, 1), ["batch", "experts"], devices)
        >>> layout_map = expert_layout_map(mesh)
        >>> layout_map["mmoe/dense_experts/kernel_0"].axes
        ('experts',)
        >>> layout_map["towers_click/kernel_0"] is None
        True
    """
    axis = mesh.axis_names[-1] if axis is None else axis
    if axis not in mesh.axis_names:
        raise ValueError(
            f"`axis` must be an axis of the mesh, one of {mesh.axis_names}. Received: "
            f"axis={axis!r}."
        )
    layout_map = keras.distribution.LayoutMap(mesh)
    layout_map[STACKED] = (axis,)
    return layout_map
