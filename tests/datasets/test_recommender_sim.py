"""The simulated recommender has the rates it says, and splits without a common row."""

import numpy as np
import pytest

from dselectk_keras.datasets import recommender_sim
from dselectk_keras.datasets.recommender_sim import Recommender

SMALL = {"num_train": 400, "num_validation": 30, "num_test": 20}


@pytest.fixture(scope="module")
def large():
    return recommender_sim(num_train=100_000, num_validation=30, num_test=20)


def test_labels_of_each_kind_have_the_rates_of_the_docstring(large):
    rates = {"click": 0.3, "save": 0.1, "share": 0.02, "comment": 0.005}
    rates |= {"satisfied": 0.6, "like": 0.05}
    assert large.info["rates"] == rates
    for name, kind, labels in zip(
        large.task_names, large.task_kinds, large.train.y.T, strict=True
    ):
        if kind == "binary":
            assert set(np.unique(labels)) == {0.0, 1.0}
            np.testing.assert_allclose(labels.mean(), rates.pop(name), rtol=0.12)
        else:
            np.testing.assert_allclose(labels.mean(), 0, atol=0.05)
            np.testing.assert_allclose(labels.std(), 1, rtol=0.03)
    assert not rates
    data = recommender_sim(**SMALL)
    assert data.task_kinds.count("binary") == 6
    assert data.groups == (0,) * 5 + (1,) * 3


def test_regression_labels_are_what_can_be_predicted_and_noise(large):
    predictable = Recommender(seed=0).utilities(large.train.x)
    for task in (4, 7):
        found = np.corrcoef(predictable[:, task], large.train.y[:, task])[0, 1]
        np.testing.assert_allclose(found, np.sqrt(4 / (4 + np.pi**2 / 3)), atol=0.01)


def test_interests_of_a_group_are_of_its_tasks_alone():
    weights = Recommender(0).weights
    first, second, common = weights[:4] != 0, weights[4:8] != 0, weights[8:] != 0
    assert all([first[:, :5].all(), second[:, 5:].all(), common.all()])
    others = np.concatenate([first[:, 5:], second[:, :5]], axis=1)
    assert not others.any()


def test_tasks_of_a_group_are_more_alike_than_others():
    alike = np.zeros((8, 8))
    for seed in range(5):
        recommender = Recommender(seed)
        x = np.random.default_rng(seed).standard_normal((2_000, 20))
        alike += np.corrcoef(recommender.utilities(x).T)
    groups = np.repeat([0, 1], [5, 3])
    same = groups[:, None] == groups
    assert alike[same & ~np.eye(8, dtype=bool)].mean() > 1.5 * alike[~same].mean() > 0
