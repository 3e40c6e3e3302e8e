"""Metrics of how gates use experts.

Functions take plain arrays; classes are Keras metrics that accumulate over batches.
"""

from dselectk_keras.metrics.active_experts import active_experts
from dselectk_keras.metrics.jaccard_index import JaccardIndex, jaccard_index
from dselectk_keras.metrics.mutual_information import MutualInformation
from dselectk_keras.metrics.sample_entropy import SampleEntropy
from dselectk_keras.metrics.selection_table import SelectionTable
from dselectk_keras.metrics.utilization_entropy import UtilizationEntropy

__all__ = [
    "JaccardIndex",
    "MutualInformation",
    "SampleEntropy",
    "SelectionTable",
    "UtilizationEntropy",
    "active_experts",
    "jaccard_index",
]
