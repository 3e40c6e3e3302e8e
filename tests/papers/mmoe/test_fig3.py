"""Whether a shared bottom does worse where tasks are less related."""

import numpy as np
import pytest

from experiments import Job, Results, Run
from papers.mmoe.fig3 import Fig3


def report_of(losses, spread, others=(0.3, 0.1)):
    """The report on losses by correlation, each of eight runs."""
    experiment = Fig3(
        seeds=8,
        correlations=tuple(losses),
        num_train=10,
        batch_size=5,
        others=((32, 0.001),),
    )
    rng = np.random.default_rng(1)
    results = Results(experiment, "test")
    arms = {f"p = {p:g}": loss for p, loss in losses.items()}
    for p, loss in zip((min(losses), max(losses)), others, strict=True):
        arms[f"p = {p:g}, 32 units, learning rate 0.001"] = loss
    assert set(arms) == set(experiment.arms)
    for arm, loss in arms.items():
        for seed, shift in enumerate(spread * rng.standard_normal(8)):
            curve = [2.0, loss + shift]
            numbers = {"loss": curve[-1], "train_loss": 0.1, "curve": curve}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return experiment.report(results)


@pytest.mark.parametrize(
    ("losses", "spread", "holds"),
    [
        ({0.5: 0.3, 1.0: 0.1, 0.9: 0.2}, 0.001, True),
        # Neighbours may be as good, but not the wrong way round.
        ({0.5: 0.3, 0.9: 0.1, 1.0: 0.1}, 0.001, True),
        ({0.5: 0.3, 0.9: 0.1, 1.0: 0.2}, 0.001, False),
        ({0.5: 0.3, 0.9: 0.2, 1.0: 0.1}, 0.5, None),
    ],
)
def test_the_claim_is_judged(losses, spread, holds):
    report = report_of(losses, spread)
    assert report.claims[0].holds is holds


@pytest.mark.parametrize(("others", "holds"), [((0.3, 0.1), True), ((0.1, 0.3), False)])
def test_other_settings_are_judged(others, holds):
    claim = report_of({0.5: 0.3, 1.0: 0.1}, 0.001, others).claims[1]
    assert claim.holds is holds
    assert "with 32 units, learning rate 0.001" in claim.ours


def test_means_are_judged_and_medians_told():
    losses = {0.5: 0.3, 1.0: 0.1}
    report = report_of(losses, 1e-6)
    rows = report.tables[0].rows
    assert rows[0] == ["p = 0.5", "0.300 ± 0.000", "0.300 ± 0.000", "0.100 ± 0.000"]
    assert "0.300 ± 0.000 at p = 0.5" in report.questions[0].ours


def test_an_arm_trains_its_own_width_and_rate(monkeypatch):
    asked = []
    monkeypatch.setattr(Fig3, "train", lambda _, *args: asked.append(args))
    experiment = Fig3()
    experiment.run("p = 0.9", [Job(3, {})])
    experiment.run("p = 1, 16 units, learning rate 0.003", [Job(4, {})])
    assert asked == [
        ("Shared-Bottom", 0.9, [Job(3, {"learning_rate": 0.001})], 16),
        ("Shared-Bottom", 1.0, [Job(4, {"learning_rate": 0.003})], 16),
    ]
