"""Numbers that describe what gates have chosen, from plain arrays."""

from dselectk_keras.metrics.active_experts import active_experts
from dselectk_keras.metrics.jaccard_index import JaccardIndex, jaccard_index

__all__ = [
    "JaccardIndex",
    "active_experts",
    "jaccard_index",
]
