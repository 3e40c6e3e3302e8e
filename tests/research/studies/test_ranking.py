"""The comparison of ranking models trains, orders, condenses and serves."""

import dataclasses

import keras
import numpy as np
import pytest

from dselectk_keras.datasets import Dataset, Split
from research.engine import Job
from research.engine.experiment import TRIAL_SEED
from research.studies import ranking
from research.studies.ranking import Ranking, as_ranking, grouped_auc

STATIC = "DSelect-k, static, condensed"
SETTINGS = {"learning_rate": 0.01, "weight_decay": 0.1}
exports = pytest.mark.backends("tensorflow", reason="TensorFlow exports.")


@pytest.fixture
def experiment(monkeypatch):
    """The experiment at its smallest, on pairs that are drawn."""
    rng = np.random.default_rng(0)

    def part(rows):
        stars = np.where(rng.random(rows) < 0.5, rng.integers(1, 6, rows), np.nan)
        y = np.stack([~np.isnan(stars), stars], axis=1).astype("float32")
        return Split(rng.integers(4, size=(rows, 2)).astype("int32"), y)

    data = Dataset(
        *(part(rows) for rows in (64, 40, 40)),
        task_names=("watched", "rating"),
        task_kinds=("binary", "regression"),
        info={"vocabulary_sizes": (4, 4)},
    )
    monkeypatch.setattr(ranking, "movielens", lambda *_, **__: data)
    smoke = Ranking.presets()["smoke"]
    return dataclasses.replace(smoke, batch_size=16, epochs=4)


def test_ratings_become_likes_and_missing_ones_stay_missing():
    y = np.array([[1, 4.0], [1, 3.5], [0, np.nan]])
    found = as_ranking(Split(np.zeros((3, 2)), y)).y
    np.testing.assert_array_equal(found, [[1, 1], [1, 0], [0, np.nan]])


def test_the_area_is_averaged_over_users_with_both_classes():
    users = np.array([7, 7, 7, 9, 9, 2])
    labels, scores = np.array([1, 0, 0, 1, 0, 1]), np.array([3, 1, 3, 0, 1, 5])
    # User 7: one pair right, one tied. User 9: wrong. User 2: one class.
    assert grouped_auc(users, labels, scores) == pytest.approx((3 * 0.75 + 2 * 0) / 5)


def test_all_models_have_nearly_as_many_parameters():
    counts = []
    for arm in Ranking().arms.values():
        keras.utils.set_random_seed(0)
        counts.append(Ranking().model(arm, (3, 3)).count_params())
    assert max(counts) < 1.12 * min(counts)


@exports
def test_a_trial_returns_the_best_validation_loss(experiment):
    (found,) = experiment.run("shared bottom", [Job(TRIAL_SEED, SETTINGS)])
    assert found.keys() == {"objective"}
    assert 0.5 < found["objective"] < 2


@exports
def test_a_run_is_condensed_ordered_and_served(experiment):
    (found,) = experiment.run(STATIC, [Job(0, SETTINGS)])
    whole = experiment.model(experiment.arms[STATIC], (4, 4)).count_params()
    assert found["parameters"] < whole - 8 * experiment.embedding
    assert 0 < found["watched_gauc"] < 1
    assert 0 < found["milliseconds_1"] < 1000
