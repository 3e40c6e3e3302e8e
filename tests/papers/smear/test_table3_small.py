"""The comparison of routers: claims, rows, and the names in the picture."""

import dataclasses

import pytest

from experiments import Results, Run
from papers.smear import _claims, table1, table3_small

ARMS = table3_small.ROUTERS
LOW, TAG, HIGH = (0.6, 0.61), (0.7, 0.72), (0.81, 0.82)
# As in the paper's Table 3.
PAPER = {**dict.fromkeys(ARMS, LOW), "Tag": TAG, "SMEAR": HIGH}
PAPER |= {"Latent Skills": TAG, "Top-k": (0.65, 0.66), "Hash": (0.5, 0.51)}
PAPER |= {"Ensemble": (0.85, 0.86), "SMEAR 2x": (0.85, 0.86), "1x compute": (0.6, 0.61)}


def results_of(accuracies, kind=table3_small.Table3Small, used=(1.0, 2.0)):
    """Made-up results: accuracies of two seeds by arm."""
    smoke = kind.presets()["smoke"]
    experiment = dataclasses.replace(smoke, routers=tuple(accuracies))
    results = Results(experiment, "smoke")
    for arm, found in accuracies.items():
        for seed, accuracy in enumerate(found):
            numbers = {
                "accuracy": accuracy,
                "accuracies": [accuracy] * 6,
                "adapter_flops": 1000.0,
                "flops": 5000.0,
                "time_ratio": 1.1,
                "experts_used": list(used),
            }
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


def holds(results):
    report = results.experiment.report(results)
    return [claim.holds for claim in report.claims]


def test_claims_hold():
    assert holds(results_of(PAPER)) == [True] * 13


@pytest.mark.parametrize(
    ("arm", "accuracy", "failing"),
    [
        ("ST-Gumbel", 0.9, {0, 3}),
        ("Hash", 0.9, {1, 4}),
        ("1x compute", 0.9, {2, 4}),
        ("Tag", 0.9, {4, 5}),
        ("1x parameters", 0.9, {4, 6}),
        ("Ensemble", 0.5, {7}),
        ("Adamix", 0.9, {8}),
        ("Soft MoE", 0.9, {9}),
        ("DSelect-k", 0.9, {0, 3, 10}),
        ("Latent Skills", 0.9, {11}),
        ("SMEAR 2x", 0.5, {12}),
    ],
)
def test_each_claim_fails(arm, accuracy, failing):
    # Not the same steps from seed to seed, which would leave no error.
    found = holds(results_of({**PAPER, arm: (accuracy, accuracy + 0.011)}))
    assert {i for i, held in enumerate(found) if held is False} == failing
    assert found.count(True) == 13 - len(failing)


def test_what_was_not_run_fails():
    accuracies = {arm: PAPER[arm] for arm in ARMS if arm not in ("SMEAR 2x", "Hash")}
    report = table3_small.Table3Small.report
    results = results_of(accuracies)
    claims = report(results.experiment, results).claims
    assert claims[12].holds is claims[1].holds is claims[4].holds is False
    assert claims[12].ours == claims[1].ours == "not run"
    assert claims[4].ours.endswith("Hash: not run.")


def test_a_difference_that_may_be_chance_is_not_judged():
    found = holds(results_of({**PAPER, "Tag": (0.80, 0.83)}))
    assert found[5] is None
    assert found[4] is True


def test_judgements():
    assert _claims.as_good(-0.1, 0.06)
    assert not _claims.as_good(-0.13, 0.06)
    assert _claims.unchanged(-0.1, 0.06)
    assert not _claims.unchanged(0.13, 0.06)
    assert _claims.unchanged(0.0, float("nan")) is None
    assert _claims.worse(-0.13, 0.06) is True
    assert _claims.better(-0.13, 0.06) is False


def test_claims_have_sources():
    for kind in (table3_small.Table3Small, table1.Table1):
        results = results_of(PAPER, kind)
        claims = kind.report(results.experiment, results).claims
        assert all(claim.source for claim in claims)


def test_rows():
    results = results_of(PAPER, used=(2.0, 3.0))
    accuracy, cost = results.experiment.report(results).tables
    row = dict(zip(accuracy.columns, accuracy.rows[0], strict=True))
    assert row["router"] == "SMEAR"
    assert row["paper, DomainNet"] == "62.0 ± 0.1"
    assert row["here"] == "81.5 ± 0.5"
    assert row["plain"] == "81.5"
    assert cost.rows[0] == ["SMEAR", "2.50", "1", "1.00", "1.00", "1.10"]


def test_dropout_helps_and_harms():
    arms = {
        "SMEAR": HIGH,
        "SMEAR, no dropout": HIGH,
        "Top-k": TAG,
        "Top-k, no dropout": LOW,
        "ST-Gumbel": TAG,
        "ST-Gumbel, dropout": LOW,
        "REINFORCE": LOW,
        "REINFORCE, dropout": LOW,
    }
    results = results_of(arms, table1.Table1)
    claims = holds(results)
    assert claims == [True] * 4
    (table,) = results.experiment.report(results).tables
    assert table.rows[0][0] == "Top-k"
    assert table.rows[0][1:5] == ["77.2", "78.4", "59.8", "60.0"]
    assert table.rows[0][5:] == ["60.5 ± 0.5", "71.0 ± 1.0"]
