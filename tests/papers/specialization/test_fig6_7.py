"""How many experts L_s and L_importance use, on made-up runs."""

import pytest

from experiments import Results, Run
from papers.specialization.fig6_7 import ALL, NEEDS, Fig6And7, arm_of


@pytest.mark.parametrize(
    ("used", "error", "expected"),
    [
        ({NEEDS: 6, ALL: 15}, 0.05, [True, True, True]),
        ({NEEDS: 14, ALL: 14}, 0.05, [False, None, True]),
        ({NEEDS: 15, ALL: 12}, 0.09, [False, False, False]),
    ],
)
def test_claims(used, error, expected):
    experiment = Fig6And7(seeds=3, num_experts=(15,))
    results = Results(experiment, "test")
    for row, way in enumerate(used):
        for seed in range(3):
            noise = (seed + row) % 3
            numbers = {
                "error": (error if way == NEEDS else 0.05) + 0.001 * noise,
                "train_error": seed,
                "mutual_information": 1.0,
                "sample_entropy": 0.5,
                "utilization_entropy": 2.0,
                "used": used[way] - (noise == 0) * (used[way] == 14),
                "table": [[1] * 15] * 10,
            }
            results.add(Run(arm_of(way, 15), seed, {}, numbers, 1.0), {})
    report = experiment.report(results)
    assert [claim.holds for claim in report.claims] == expected
    assert {claim.source for claim in report.claims} == {
        "Figure 6, Section 7",
        "Section 6, last sentence",
    }
    assert report.tables[0].rows[0][:3] == [15, "L_s", error]
