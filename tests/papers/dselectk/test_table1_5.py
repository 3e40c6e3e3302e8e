"""Tables 1 and 5: what is measured, which solutions count, and what is claimed."""

import dataclasses
import math

import numpy as np
import pytest

from dselectk_keras.experiments import Job, Results, Run
from papers.dselectk._gates import METHODS, is_admissible
from papers.dselectk._movielens import task_numbers
from papers.dselectk.table1_5 import Table1And5, named

# A few steps of many models: TensorFlow would trace graphs most of the time.
pytestmark = pytest.mark.usefixtures("eagerly")


def made_up(losses, experiment=None, **numbers):
    """Results with a list of losses for each arm."""
    results = Results(experiment or Table1And5(alphas=(0.5,)), "made-up")
    for arm, values in losses.items():
        for seed, loss in enumerate(values):
            found = {"loss": loss, "experts": 2.0, "admissible": True, **numbers}
            found |= {named(name, 0.5): value for name, value in found.items()}
            results.add(Run(arm, seed, {}, found, 1.0), {})
    return results


def test_loss_is_the_weighted_sum_of_the_tasks():
    labels = np.array([[1.0, 0.5], [0.0, np.nan], [1.0, -1.5]])
    watched = np.array([0.5, 0.25, 0.75])
    rating = np.array([1.5, 7.0, -1.5])
    numbers = task_numbers(watched, rating, labels, alpha=0.25)
    entropy = -(math.log(0.5) + 2 * math.log(0.75)) / 3
    assert numbers["watched_loss"] == pytest.approx(entropy)
    # The film without a rating is left out: (1 + 0) / 2.
    assert numbers["rating_mse"] == pytest.approx(0.5)
    assert numbers["loss"] == pytest.approx(0.25 * entropy + 0.75 * 0.5)
    # A probability of one half is not yet "watched".
    assert numbers["watched_accuracy"] == pytest.approx(2 / 3)
    assert numbers["watched_auc"] == 1.0


def test_certain_mistakes_stay_finite():
    numbers = task_numbers(
        np.array([0.0, 1.0]), np.zeros(2), np.array([[1.0, 0.0], [0.0, np.nan]]), 0.5
    )
    assert np.isfinite(numbers["loss"])


@pytest.mark.parametrize(
    ("method", "numbers", "counts"),
    [
        ("DSelect-k, static", {"binary": 1.0, "experts": 2.0}, True),
        ("DSelect-k, static", {"binary": 0.75, "experts": 2.0}, False),
        ("DSelect-k, per-example", {"binary": 0.75, "experts": 1.9}, True),
        ("DSelect-k, per-example", {"binary": 1.0, "experts": 2.1}, False),
        ("Top-k, static", {"experts": 2.0}, True),
        ("Gumbel-softmax, static", {"experts": 2.5}, False),
        ("softmax, per-example", {"experts": 8.0}, True),
        ("shared bottom", {}, True),
    ],
)
def test_rules_of_the_paper(method, numbers, counts):
    assert is_admissible(numbers, METHODS[method], num_nonzeros=2) is counts


def losses(dselect, others):
    """A loss for each seed of each arm: DSelect-k's, and that of all others."""
    return {
        method: dselect if method.startswith("DSelect-k") else others
        for method in METHODS
    }


def test_claims_hold_where_dselect_k_is_better():
    results = made_up(losses([0.50, 0.51, 0.52], [0.60, 0.62, 0.61]))
    report = results.experiment.report(results)
    assert [claim.holds for claim in report.claims] == [True, True, True, True]
    assert report.verdict == "yes"
    assert "0.5100" in report.claims[0].ours


def test_claims_fail_where_it_is_not():
    results = made_up(losses([0.60, 0.62, 0.61], [0.50, 0.51, 0.52]), admissible=False)
    report = results.experiment.report(results)
    assert [claim.holds for claim in report.claims] == [False] * 4
    assert "0 of 6 runs" in report.claims[-1].ours


def test_tables_have_a_row_for_each_gate():
    results = made_up(losses([0.50, 0.51], [0.60, 0.62]), watched_auc=0.75)
    first, second = results.experiment.report(results).tables
    assert [row[0] for row in first.rows] == list(METHODS)
    assert first.rows[0][1:] == ["0.5050 ± 0.0050", "2.00 ± 0.00", "2 of 2"]
    assert second.rows[0][:2] == ["DSelect-k, static", "0.5"]
    assert second.rows[0][3] == "0.7500 ± 0.0000"
    assert all(len(row) == len(second.columns) for row in second.rows)


def test_ratings_have_no_mean_in_training():
    data = Table1And5(stand_in=True).data()
    assert np.nanmean(np.asarray(data.train.y)[:, 1]) == pytest.approx(0.0, abs=1e-6)
    # Who has not watched has not rated.
    watched, rating = np.asarray(data.test.y).T
    np.testing.assert_array_equal(np.isnan(rating), watched == 0)


def test_settings_are_judged_by_the_mean_over_the_weights_of_the_tasks():
    whole = dataclasses.replace(
        Table1And5.presets()["smoke"],
        methods=("shared bottom",),
        alphas=(0.1, 0.9),
        batch_size=48,
    )
    jobs = [Job(seed, {"learning_rate": 0.01}) for seed in (3, 4)]
    both = whole.run("shared bottom", jobs)
    parts = [
        dataclasses.replace(whole, alphas=(alpha,)).run("shared bottom", jobs)
        for alpha in whole.alphas
    ]
    for number, found in enumerate(both):
        single = [part[number] for part in parts]
        mean = np.mean([numbers["objective"] for numbers in single])
        assert found["objective"] == pytest.approx(mean, rel=1e-5)
        for alpha, numbers in zip(whole.alphas, single, strict=True):
            loss = named("loss", alpha)
            assert found[loss] == pytest.approx(numbers[loss], rel=1e-5)


def test_weights_of_the_tasks_add_up():
    experiment = Table1And5.presets()["smoke"]
    model = experiment.model(experiment.data(), METHODS["shared bottom"], 0.1, 0.01)
    assert [task.weight for task in model.tasks] == [0.1, 0.9]
