"""The claims on three models, on made-up losses."""

import numpy as np
import pytest

from experiments import Job, Results, Run
from experiments.reproduce import TRIAL_SEED
from papers.mmoe._synthetic import gaps, median
from papers.mmoe._three_models import arm_of
from papers.mmoe.fig4 import Fig4

# In the order and with the trend of the paper.
LOSSES = {
    "Shared-Bottom": (0.30, 0.24, 0.20),
    "OMoE": (0.25, 0.17, 0.10),
    "MMoE": (0.13, 0.11, 0.10),
}


def report_of(losses, spread=0.001):
    experiment = Fig4(seeds=8, num_train=10, batch_size=5)
    rng = np.random.default_rng(1)
    results = Results(experiment, "test")
    for model, means in losses.items():
        for p, mean in zip(experiment.correlations, means, strict=True):
            for seed, shift in enumerate(spread * rng.standard_normal(8)):
                curve = [2.0, mean + shift]
                numbers = {"loss": curve[-1], "train_loss": 0.1, "curve": curve}
                settings = {"learning_rate": 0.01}
                run = Run(arm_of(model, p), seed, settings, numbers, 1.0)
                results.add(run, {})
    return experiment.report(results)


def judgements(**changes):
    spread = changes.pop("spread", 0.001)
    losses = LOSSES | {name.replace("_", "-"): v for name, v in changes.items()}
    return [claim.holds for claim in report_of(losses, spread).claims]


def test_claims_hold_as_in_the_paper():
    assert judgements() == [True] * 5


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # The trend breaks between neighbours, or over the whole range.
        ({"Shared_Bottom": (0.30, 0.19, 0.20)}, [False, True, True, True, True]),
        ({"OMoE": (0.15, 0.17, 0.16)}, [False, False, False, False, True]),
        # MMoE's gap is the widest.
        ({"MMoE": (0.24, 0.11, 0.10)}, [True, False, True, True, True]),
        # The mixtures differ where the tasks are the same; OMoE is not better than
        # Shared-Bottom.
        ({"OMoE": (0.35, 0.25, 0.18)}, [True, True, False, True, False]),
        # MMoE changes by more than OMoE, which is not worse by much.
        ({"MMoE": (0.24, 0.11, 0.05)}, [True, False, False, False, True]),
        # OMoE is better than MMoE where the tasks differ.
        ({"OMoE": (0.12, 0.10, 0.05)}, [True, True, False, False, True]),
    ],
)
def test_claims_fail_one_by_one(changes, expected):
    assert judgements(**changes) == expected


def test_what_may_be_chance_is_not_judged():
    # Nor is it known that two models hardly differ.
    assert judgements(spread=0.5) == [None] * 5


def test_numbers_are_told():
    report = report_of(LOSSES, spread=1e-6)
    assert "+0.0300 ± 0.0000 (MMoE)" in report.claims[1].ours
    row = report.tables[0].rows[3]
    assert row[:3] == ["OMoE", "0.5", None]
    assert row[3:] == ["0.250 ± 0.000", "0.250 ± 0.000", "0.100 ± 0.000"]
    assert "0.130 ± 0.000, 0.110 ± 0.000" in report.questions[0].ours
    axes = report.pictures[0].draw().axes
    assert [ax.get_title("left") for ax in axes] == [*LOSSES]


def test_means_are_judged():
    # One poor run of OMoE moves its mean and not its median.
    experiment = Fig4(seeds=8, num_train=10, batch_size=5)
    results = Results(experiment, "test")
    for arm, (model, p) in experiment.arms.items():
        for seed in range(8):
            loss = LOSSES[model][experiment.correlations.index(p)] + 1e-4 * seed
            loss += 8.0 * (arm == "OMoE, p = 1" and seed == 0)
            numbers = {"loss": loss, "train_loss": loss, "curve": [loss]}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    report = experiment.report(results)
    assert "1.10 ± 1.00 (OMoE)" in report.claims[0].ours
    assert report.claims[2].holds is None
    assert "0.170 ± 0.000, 0.100 ± " in report.questions[0].ours


def test_gaps_are_those_of_twins():
    results = Results(Fig4(), "test")
    for arm, losses in {"a": {0: 3.0, 1: 5.0, 2: 9.0}, "b": {2: 1.0, 0: 2.0}}.items():
        for seed, loss in losses.items():
            results.add(Run(arm, seed, {}, {"loss": loss}, 1.0), {})
    assert gaps(results, "a", "b").tolist() == [1.0, 8.0]


def test_the_median_and_its_error():
    middle, error = median(np.array([[1.0, 5.0], [2.0, 5.0], [9.0, 5.0]]))
    assert middle.tolist() == [2.0, 5.0]
    assert error[0] > 0
    assert error[1] == 0
    assert np.isnan(median(np.array([1.0]))[1])


def test_a_trial_is_a_mean_over_runs(monkeypatch):
    experiment = Fig4(trial_runs=2)
    asked = []

    def train(_, model, p, jobs):
        asked.append((model, p, [job.seed - TRIAL_SEED for job in jobs]))
        return [{"loss": float(number)} for number in range(len(jobs))]

    monkeypatch.setattr(Fig4, "train", train)
    jobs = [Job(TRIAL_SEED, {"learning_rate": rate}) for rate in (0.1, 0.2)]
    found = experiment.run("MMoE, p = 0.9", jobs)
    assert found == [{"objective": 0.5}, {"objective": 2.5}]
    assert asked == [("MMoE", 0.9, [0, 1, 0, 1])]
