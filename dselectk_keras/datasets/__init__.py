"""Data sets as plain NumPy arrays, all of the type `Dataset`."""

from dselectk_keras.datasets.correlated_tasks import correlated_tasks
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.datasets.expert_recovery import expert_recovery
from dselectk_keras.datasets.grouped_tasks import grouped_tasks
from dselectk_keras.datasets.load import NAMES, load
from dselectk_keras.datasets.recommender_sim import recommender_sim
from dselectk_keras.datasets.synthetic_moe import synthetic_moe

__all__ = [
    "NAMES",
    "Dataset",
    "Split",
    "correlated_tasks",
    "expert_recovery",
    "grouped_tasks",
    "load",
    "recommender_sim",
    "synthetic_moe",
]
