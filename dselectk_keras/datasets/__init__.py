"""Data sets as plain NumPy arrays, all of the type `Dataset`."""

from dselectk_keras.datasets.census_income import census_income
from dselectk_keras.datasets.correlated_tasks import correlated_tasks
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.datasets.domainnet import domainnet
from dselectk_keras.datasets.expert_recovery import expert_recovery
from dselectk_keras.datasets.fashion_mnist import fashion_mnist
from dselectk_keras.datasets.load import NAMES, load
from dselectk_keras.datasets.mnist import mnist
from dselectk_keras.datasets.movielens import movielens
from dselectk_keras.datasets.recommender_sim import recommender_sim
from dselectk_keras.datasets.recommender_stream import RecommenderStream
from dselectk_keras.datasets.synthetic_moe import synthetic_moe

__all__ = [
    "NAMES",
    "Dataset",
    "RecommenderStream",
    "Split",
    "census_income",
    "correlated_tasks",
    "domainnet",
    "expert_recovery",
    "fashion_mnist",
    "load",
    "mnist",
    "movielens",
    "recommender_sim",
    "synthetic_moe",
]
