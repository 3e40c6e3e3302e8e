"""The comparison of routers: claims, rows, and the names in the picture."""

import dataclasses

import pytest

from dselectk_keras.experiments import Results, Run
from papers.smear import table3_small

ARMS = ("1x compute", "hash", "tag", "switch", "Soft MoE", "SMEAR")


def results_of(accuracies, time_ratio=1.1):
    """Made-up results: accuracies of two seeds by arm."""
    smoke = table3_small.Table3Small.presets()["smoke"]
    experiment = dataclasses.replace(smoke, routers=ARMS)
    results = Results(experiment, "smoke")
    for arm in ARMS:
        for seed, accuracy in enumerate(accuracies[arm]):
            numbers = {
                "accuracy": accuracy,
                "accuracies": [accuracy] * 6,
                "adapter_flops": 1000.0,
                "flops": 5000.0,
                "time_ratio": time_ratio,
            }
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


LOW, TAG, HIGH = (0.6, 0.61), (0.8, 0.82), (0.81, 0.82)


def holds(results):
    report = results.experiment.report(results)
    return [claim.holds for claim in report.claims]


def test_claims_hold():
    results = results_of({**dict.fromkeys(ARMS, LOW), "tag": TAG, "SMEAR": HIGH})
    assert holds(results) == [True] * 5


@pytest.mark.parametrize(
    ("arm", "claim"), [("switch", 0), ("tag", 1), ("hash", 2), ("Soft MoE", 3)]
)
def test_each_claim_fails(arm, claim):
    accuracies = {**dict.fromkeys(ARMS, LOW), "SMEAR": HIGH, arm: (0.9, 0.91)}
    wanted = [True] * 5
    wanted[claim] = False
    assert holds(results_of(accuracies)) == wanted


def test_time_may_not_be_long():
    accuracies = {**dict.fromkeys(ARMS, LOW), "SMEAR": HIGH}
    assert holds(results_of(accuracies, time_ratio=1.3))[-1] is False


def test_what_was_not_run_is_not_judged():
    smoke = table3_small.Table3Small.presets()["smoke"]
    results = results_of({**dict.fromkeys(ARMS, LOW), "SMEAR": HIGH})
    fewer = Results(smoke, "smoke")
    fewer.runs, fewer.environments = results.runs, results.environments
    assert holds(fewer)[0] is None
    assert holds(fewer)[1] is True


def test_rows():
    results = results_of({**dict.fromkeys(ARMS, LOW), "SMEAR": HIGH})
    accuracy, cost = results.experiment.report(results).tables
    row = dict(zip(accuracy.columns, accuracy.rows[-1], strict=True))
    assert row["router"] == "SMEAR"
    assert row["here"] == "81.5 ± 0.5"
    assert row["plain"] == "81.5"
    assert row["paper, DomainNet"] is None
    assert cost.rows[0] == ["1x compute", "1", "1.00", "1.00", "1.10"]
