"""Data sets by name."""

import importlib
from typing import Any

from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.utils import check_choice

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
    module = importlib.import_module(f"dselectk_keras.datasets.{name}")
    return getattr(module, name)(**options)
