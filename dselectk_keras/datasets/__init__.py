"""Data sets as plain NumPy arrays, every one behind the same `Dataset`."""

from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.expert_recovery import expert_recovery
from dselectk_keras.datasets.load import NAMES, load
from dselectk_keras.datasets.split import Split
from dselectk_keras.datasets.synthetic_moe import synthetic_moe

__all__ = [
    "NAMES",
    "Dataset",
    "Split",
    "expert_recovery",
    "load",
    "synthetic_moe",
]
