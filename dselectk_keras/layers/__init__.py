"""Gates and experts composed."""

from dselectk_keras.layers.mmoe import MMoE
from dselectk_keras.layers.moe import MoE

__all__ = ["MMoE", "MoE"]
