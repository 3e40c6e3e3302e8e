"""Data sets by name."""

from typing import Any

from dselectk_keras.datasets.census_income import census_income
from dselectk_keras.datasets.cifar100 import cifar100
from dselectk_keras.datasets.correlated_tasks import correlated_tasks
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.domainnet import domainnet
from dselectk_keras.datasets.expert_recovery import expert_recovery
from dselectk_keras.datasets.fashion_mnist import fashion_mnist
from dselectk_keras.datasets.fmnist_mnist import fmnist_mnist
from dselectk_keras.datasets.glue import glue
from dselectk_keras.datasets.mnist import mnist
from dselectk_keras.datasets.movielens import movielens
from dselectk_keras.datasets.multi_fashion import multi_fashion
from dselectk_keras.datasets.multi_mnist import multi_mnist
from dselectk_keras.datasets.recommender_sim import recommender_sim
from dselectk_keras.datasets.synthetic_moe import synthetic_moe

_DATASETS = {
    loader.__name__: loader
    for loader in (
        census_income,
        cifar100,
        correlated_tasks,
        domainnet,
        expert_recovery,
        fashion_mnist,
        fmnist_mnist,
        glue,
        mnist,
        movielens,
        multi_fashion,
        multi_mnist,
        recommender_sim,
        synthetic_moe,
    )
}

NAMES = tuple(_DATASETS)


def load(name: str, **options: Any) -> Dataset:
    """Load a data set by name.

    Args:
        name: one of `NAMES`, which are the names of the functions.
        **options: the arguments of the function of that name. All take the sizes of
            the splits, `num_train`, `num_validation` and `num_test`, and a `seed`;
            those that read files also take `data_dir`.

    Returns:
        A `Dataset`.

    Example:
        >>> load("synthetic_moe", num_tasks=16, num_train=100).num_tasks
        16
    """
    if name not in _DATASETS:
        raise ValueError(
            f"`name` must be the name of a data set. Received: name={name!r}. "
            f"Known names: {', '.join(sorted(_DATASETS))}."
        )
    return _DATASETS[name](**options)
