"""Data sets of the papers' experiments that are not in the package, in its forms."""

from typing import Any

from dselectk_keras import datasets
from research.papers.data.census_income import census_income
from research.papers.data.cifar100 import cifar100
from research.papers.data.domainnet import domainnet
from research.papers.data.fmnist_mnist import fmnist_mnist
from research.papers.data.mnist import fashion_mnist, mnist
from research.papers.data.movielens import movielens
from research.papers.data.multi_mnist import multi_mnist

__all__ = [
    "census_income",
    "cifar100",
    "domainnet",
    "fashion_mnist",
    "fmnist_mnist",
    "load",
    "mnist",
    "movielens",
    "multi_mnist",
]

OWN = {
    function.__name__: function
    for function in (
        census_income,
        cifar100,
        domainnet,
        fashion_mnist,
        fmnist_mnist,
        mnist,
        movielens,
        multi_mnist,
    )
}
NAMES = (*datasets.NAMES, *OWN)


def load(name: str, **options: Any) -> datasets.Dataset:
    """Load a data set of this folder or of the package by name.

    Args:
        name: The name of a function here, or a name that `datasets.load` takes.
        **options: The arguments of that function.

    Returns:
        A `Dataset`.
    """
    return OWN[name](**options) if name in OWN else datasets.load(name, **options)
