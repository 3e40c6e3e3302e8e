"""Layers that combine experts and gates."""

from dselectk_keras.layers.cgc import CGC
from dselectk_keras.layers.mmoe import MMoE
from dselectk_keras.layers.moe import MoE
from dselectk_keras.layers.smear_experts import SmearExperts

__all__ = [
    "CGC",
    "MMoE",
    "MoE",
    "SmearExperts",
]
