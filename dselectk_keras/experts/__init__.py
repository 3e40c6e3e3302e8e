"""Banks of experts: layers with `num_experts` sub-networks of one shape."""

from dselectk_keras.experts.bank import ExpertBank
from dselectk_keras.experts.dense import DenseExperts
from dselectk_keras.experts.expert_layout_map import expert_layout_map
from dselectk_keras.experts.experts import Experts

__all__ = [
    "DenseExperts",
    "ExpertBank",
    "Experts",
    "expert_layout_map",
]
