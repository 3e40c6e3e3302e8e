"""Data sets as plain NumPy arrays, all of the type `Dataset`."""

from typing import Any

from dselectk_keras.datasets.correlated_tasks import correlated_tasks
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.datasets.expert_recovery import expert_recovery
from dselectk_keras.datasets.grouped_tasks import grouped_tasks
from dselectk_keras.datasets.recommender_sim import recommender_sim
from dselectk_keras.datasets.synthetic_moe import synthetic_moe
from dselectk_keras.utils import check_choice

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

NAMES = (
    "correlated_tasks",
    "expert_recovery",
    "grouped_tasks",
    "recommender_sim",
    "synthetic_moe",
)


def load(name: str, **options: Any) -> Dataset:
    """Load a data set by name.

    Args:
        name: One of `NAMES`, which are the names of the functions.
        **options: The arguments of the function of that name. All take the sizes of the
            splits, `num_train`, `num_validation` and `num_test`, and a `seed`.

    Returns:
        A `Dataset`.

    Example:
        >>> load("synthetic_moe", num_tasks=16, num_train=100).num_tasks
        16
    """
    check_choice("name", name, NAMES)
    return globals()[name](**options)
