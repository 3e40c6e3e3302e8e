"""The speed of routers: what is counted, and what the times mean."""

import itertools

import pytest

from experiments import Results, Run
from papers.smear import fig2


def report_of(ratio):
    """The report of made-up times, relative to SMEAR's."""
    experiment = fig2.Fig2.presets()["cpu"]
    results = Results(experiment, "cpu")
    for arm, (setting, router) in experiment.arms.items():
        for seed in range(2):
            value = ratio(setting, router) + 0.001 * seed
            numbers = {"ratio": value, "speed": 1 / value}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return experiment.report(results)


def as_in_the_paper(setting, router):
    if router == "Ensemble":
        return fig2.SLOWDOWN[setting]
    return 0.95 if router in fig2.UNROUTED else 1.0


def test_claims_hold():
    claims = report_of(as_in_the_paper).claims
    assert [claim.holds for claim in claims] == [True] * 12
    assert all(claim.source for claim in claims)


@pytest.mark.parametrize(
    ("router", "value", "failing"),
    [
        ("Tag", 1.1, {0, 5}),
        ("REINFORCE", 0.8, {0, 1, 2, 5, 6, 7}),
        ("Top-k", 1.15, {1, 6}),
        ("DSelect-k", 1.15, {6}),  # The paper has none on texts.
        ("Ensemble", 0.9, {0, 3, 4, 5, 8, 9}),
        ("Ensemble", 1.05, {4, 9}),
    ],
)
def test_claims_fail(router, value, failing):
    claims = report_of(
        lambda setting, r: value if r == router else as_in_the_paper(setting, r)
    ).claims
    assert {i for i, claim in enumerate(claims) if claim.holds is False} == failing


def test_times_that_vary_are_not_judged():
    values = itertools.cycle([1.0, 1.3])
    claims = report_of(
        lambda setting, r: next(values) if r == "Top-k" else as_in_the_paper(setting, r)
    ).claims
    # All but those on the ensemble beside SMEAR, and on operations.
    open_ = [i for i, claim in enumerate(claims) if claim.holds is None]
    assert open_ == [0, 1, 2, 3, 5, 6, 7, 8]


def test_operations_by_hand():
    cpu = fig2.Fig2.presets()["cpu"]
    one = cpu.flops(fig2.T5, "1x compute")
    assert one == 4 * 128 * 768 * 24
    # N L / (N + L), but for the router.
    ratio = cpu.flops(fig2.T5, "Ensemble") / cpu.flops(fig2.T5, "SMEAR")
    assert ratio == pytest.approx(8 * 128 / (8 + 128), rel=2e-3)
