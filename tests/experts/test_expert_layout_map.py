"""Experts are split over the axis that is asked for, and nothing else is.

`tests/distribution/test_several_processes.py` trains with it on eight devices.
"""

import numpy as np
import pytest
from keras.distribution import DeviceMesh

from dselectk_keras.experts import expert_layout_map

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def mesh():
    return DeviceMesh((1, 1), ["batch", "experts"], np.array(["cpu:0"]))


@pytest.mark.parametrize(
    ("path", "axes"),
    [
        ("mmoe/dense_experts/kernel_0", ("experts",)),
        ("dense_experts_2/bias_1", ("experts",)),
        ("mmoe/top_k_gate/gate_kernel", None),
        ("towers_a/kernel_0", None),
    ],
)
def test_only_the_experts_are_split(mesh, path, axes):
    layout = expert_layout_map(mesh)[path]
    assert (layout and layout.axes) == axes


def test_banks_are_found_by_their_names(mesh):
    layout_map = expert_layout_map(mesh, names=["mine", "a.b"])
    assert layout_map["mmoe/mine/kernel_0"].axes == ("experts",)
    assert layout_map["a.b_1/bias_0"].axes == ("experts",)
    for path in ("mmoe/dense_experts/kernel_0", "axb/kernel_0", "yours/kernel_0"):
        assert layout_map[path] is None
    for names in ("mine", 3, None, [None]):
        with pytest.raises(ValueError, match=r"`names` must be a list.*Received: name"):
            expert_layout_map(mesh, names=names)


def test_another_axis_can_be_chosen_and_must_be_of_the_mesh(mesh):
    assert expert_layout_map(mesh, "batch")["dense_experts/kernel_0"].axes == ("batch",)
    with pytest.raises(ValueError, match=r"of 'batch', 'experts'.*axis='model'"):
        expert_layout_map(mesh, "model")
    with pytest.raises(ValueError, match=r"`mesh` must be a .*mesh='cpu'"):
        expert_layout_map("cpu")
