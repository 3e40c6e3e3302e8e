"""Tables 1 and 5: what is measured, which solutions count, and what is claimed."""

import math

import keras
import numpy as np
import pytest

from experiments import Job, Results, Run
from papers.dselectk._gates import METHODS, grouped, is_admissible
from papers.dselectk._movielens import task_numbers
from papers.dselectk.table1_5 import SOFTMAX, Table1And5, name_arm

# A few steps of many models: TensorFlow would trace graphs most of the time.


def made_up(losses, alphas=(0.5,), outside=(), **numbers):
    """Results with a list of losses for each method; some break the paper's rules."""
    experiment = Table1And5(alphas=alphas, methods=tuple(losses))
    results = Results(experiment, "made-up")
    for method, values in losses.items():
        for alpha in alphas:
            for seed, loss in enumerate(values):
                own = method.startswith("DSelect-k")
                found = {"loss": loss, **numbers}
                found["experts"] = 1.5 if own else 2.0
                found["admissible"] = method not in outside
                arm = name_arm(method, alpha)
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
        ("Gumbel-softmax, static", {"experts": 2.5, "expected": 4.1}, False),
        ("Gumbel-softmax, static", {"experts": 2.5, "expected": 3.9}, True),
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
    found = losses([0.50, 0.51, 0.52], [0.60, 0.62, 0.61])
    found[SOFTMAX] = [0.70, 0.71, 0.72]
    results = made_up(found, alphas=(0.1, 0.9))
    report = results.experiment.report(results)
    # One gate wins for both weights; the two DSelect-k gates are equal.
    assert [claim.holds for claim in report.claims] == [
        *(True, True, False, True, True, None),
    ]
    assert "0.5100" in report.claims[0].ours


def test_claims_fail_where_it_is_not():
    found = losses([0.60, 0.62, 0.61], [0.50, 0.51, 0.52])
    report = (results := made_up(found)).experiment.report(results)
    assert [claim.holds for claim in report.claims] == [
        *(False, True, None, False, False, None),
    ]


def test_a_method_that_was_not_run_fails_its_claims():
    found = losses([0.50, 0.51], [0.60, 0.62])
    results = made_up({name: found[name] for name in tuple(METHODS)[:2]})
    report = results.experiment.report(results)
    assert [claim.holds for claim in report.claims] == [False] * 6
    assert "shared bottom: not run" in report.claims[0].ours


@pytest.mark.parametrize("outside", ["DSelect-k, static", "Gumbel-softmax, static"])
def test_who_breaks_the_rules_neither_wins_nor_is_beaten(outside):
    found = losses([0.50, 0.51, 0.52], [0.60, 0.62, 0.61])
    results = made_up(found, alphas=(0.1, 0.9), outside=(outside,))
    report = results.experiment.report(results)
    assert report.claims[3].holds is None
    assert outside in report.notes[-1]


def test_no_gate_wins_where_each_is_beaten():
    found = losses([0.50, 0.51, 0.52], [0.60, 0.62, 0.61])
    results = made_up(found, alphas=(0.1, 0.9))
    for run in results.of(name_arm("Top-k, static", 0.9)):
        run.numbers["loss"] -= 0.2
    assert results.experiment.report(results).claims[2].holds is True


def test_per_example_gates_are_compared_with_static_ones():
    found = losses([0.50, 0.51, 0.52], [0.60, 0.62, 0.61])
    found["DSelect-k, per-example"] = [0.40, 0.41, 0.42]
    results = made_up(found)
    assert results.experiment.report(results).claims[5].holds is True
    found["DSelect-k, per-example"] = [0.55, 0.56, 0.57]
    results = made_up(found)
    assert results.experiment.report(results).claims[5].holds is False


def test_tables_have_a_row_for_each_gate():
    results = made_up(losses([0.50, 0.51], [0.60, 0.62]), watched_accuracy=0.75)
    first, second = results.experiment.report(results).tables
    assert [row[0] for row in first.rows] == list(METHODS)
    assert first.rows[0][1:] == ["0.5050 ± 0.0050", "1.50 ± 0.00", "2 of 2"]
    assert second.rows[0][:3] == ["DSelect-k, static", "0.5", "0.7500 ± 0.0000"]
    assert all(len(row) == len(second.columns) for row in second.rows)


def test_ratings_have_no_mean_in_training():
    data = Table1And5(stand_in=True).data()
    assert np.nanmean(np.asarray(data.train.y)[:, 1]) == pytest.approx(0.0, abs=1e-6)
    # Who has not watched has not rated.
    watched, rating = np.asarray(data.test.y).T
    np.testing.assert_array_equal(np.isnan(rating), watched == 0)


def test_jobs_of_one_shape_share_a_program():
    jobs = [
        Job(seed, {"learning_rate": rate, "num_nonzeros": k})
        for seed, rate, k in ((3, 0.1, 2), (4, 0.2, 4), (5, 0.3, 2))
    ]
    fixed = {"learning_rate": 0.0, "epochs": 7, "num_nonzeros": 0}
    groups = grouped(jobs, fixed, ("num_nonzeros", "epochs", "units"))
    assert [shape for shape, _ in groups] == [
        {"num_nonzeros": 2, "epochs": 7},
        {"num_nonzeros": 4, "epochs": 7},
    ]
    assert groups[0][1] == [
        (0, Job(3, {"learning_rate": 0.1})),
        (2, Job(5, {"learning_rate": 0.3})),
    ]


def test_each_weight_of_the_tasks_is_tuned_alone():
    experiment = Table1And5.presets()["paper"]
    space = experiment.space(name_arm("DSelect-k, static", 0.9))
    assert space["num_nonzeros"] == (2, 4)
    assert space["entropy"] == (0.1, 1.0, 10.0)
    assert "units" in experiment.space(name_arm("shared bottom", 0.9))
    assert len(experiment.arms) == 3 * len(METHODS)


def test_model_is_the_papers():
    experiment = Table1And5.presets()["smoke"]
    method = METHODS["DSelect-k, static"]
    shape = {"num_nonzeros": 2, "epochs": 1}
    model = experiment.model(experiment.data(), method, 0.1, 0.01, shape)
    assert [task.weight for task in model.tasks] == [0.1, 0.9]
    assert isinstance(model.optimizer, keras.optimizers.Adagrad)
    experts = model.get_layer("mmoe").experts.experts
    assert len(experts) == 8
    assert experts[0].layers[-1].rate == 0.5
