"""Layers that combine experts and gates."""

from dselectk_keras.layers.cgc import CGC
from dselectk_keras.layers.cross_stitch import CrossStitch
from dselectk_keras.layers.l2_constrained import L2Constrained
from dselectk_keras.layers.mmoe import MMoE
from dselectk_keras.layers.moe import MoE
from dselectk_keras.layers.smear_experts import SmearExperts

__all__ = [
    "CGC",
    "CrossStitch",
    "L2Constrained",
    "MMoE",
    "MoE",
    "SmearExperts",
]
