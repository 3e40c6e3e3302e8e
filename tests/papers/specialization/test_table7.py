"""The claims on other numbers of experts, on made-up runs."""

import pytest

from dselectk_keras.experiments import Results, Run
from papers.specialization.table7 import SHOWN, Table7


@pytest.mark.parametrize(
    ("used", "expected"),
    [((2.3, 2.3, 2.3), [True] * 3), ((1.7, 2.0, 2.3), [False, None, True])],
)
def test_claims(used, expected):
    experiment = Table7(seeds=3, num_experts=(5,))
    results = Results(experiment, "test")
    for row, (way, entropy) in enumerate(zip(SHOWN, (2.0, *used), strict=True)):
        for seed in range(3):
            numbers = {
                "error": 0.05,
                "mutual_information": 1.0,
                "sample_entropy": 0.5,
                "utilization_entropy": entropy + 0.01 * ((seed + row) % 3),
            }
            results.add(Run(f"{way}, 5 experts", seed, {}, numbers, 1.0), {})
    report = experiment.report(results)
    assert [claim.holds for claim in report.claims] == expected
    assert report.tables[0].rows[0][:2] == [5, "original"]


@pytest.mark.parametrize(("used", "holds"), [(2.2, True), (3.5, False), (3.0, None)])
def test_more_experts_lie_idle(used, holds):
    experiment = Table7(seeds=3, num_experts=(4, 8))
    results = Results(experiment, "test")
    for way in SHOWN:
        for count, entropy in {4: 2.0, 8: used}.items():
            for seed in range(3):
                numbers = {
                    "error": 0.05,
                    "mutual_information": 1.0,
                    "sample_entropy": 0.5,
                    "utilization_entropy": entropy + 0.01 * seed,
                }
                arm = f"{way}, {count} experts"
                results.add(Run(arm, seed, {}, numbers, 1.0), {})
    assert experiment.report(results).claims[0].holds is holds
