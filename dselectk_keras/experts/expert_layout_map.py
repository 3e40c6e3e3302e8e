"""A layout of experts over devices."""

import re
from collections.abc import Iterable

import keras

from dselectk_keras.utils import check_choice, check_type

# `DenseExperts` has one kernel and one bias per layer, with the experts first.
STACKED = r"(.*/)?{name}(_\d+)?/(kernel|bias)_\d+"


def expert_layout_map(
    mesh: keras.distribution.DeviceMesh,
    axis: str | None = None,
    names: Iterable[str] = ("dense_experts",),
) -> keras.distribution.LayoutMap:
    """A layout in which each device holds some of the experts, for JAX.

    The kernels and biases of all layers `DenseExperts` are split between the experts,
    and so are the optimizer's variables. Gates, towers and everything else are copied
    to all devices. Add entries to the map to split these too. The number of experts
    must be divisible by the size of the axis.

    Layers are found by their names, because the layout is needed before they exist.
    Without a `name`, a bank is `dense_experts`, `dense_experts_1` and so on. The
    experts of the bank `Experts` have separate variables, and cannot be split.

    Args:
        mesh: A `keras.distribution.DeviceMesh`.
        axis: The name of the mesh's axis that the experts are split over. `None` is
            its last axis.
        names: The names of the banks to split.

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
        >>> layout_map = expert_layout_map(mesh, names=["mine"])
        >>> layout_map["mmoe/mine/kernel_0"].axes
        ('experts',)
    """
    device_mesh = keras.distribution.DeviceMesh
    check_type("mesh", mesh, device_mesh, "a `keras.distribution.DeviceMesh`")
    axis = mesh.axis_names[-1] if axis is None else axis
    check_choice("axis", axis, mesh.axis_names)
    layout_map = keras.distribution.LayoutMap(mesh)
    check_type("names", names, (list, tuple), "a list of names of banks")
    for name in names:
        check_type("names", name, str, "a list of names of banks")
        layout_map[STACKED.format(name=re.escape(name))] = (axis,)
    return layout_map
