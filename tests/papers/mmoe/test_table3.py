"""Five methods on two tasks of a recommender, on made-up results."""

import numpy as np
import pytest

from dselectk_keras.utils import num_trained
from experiments import Results, Run
from papers import EXPERIMENTS
from papers.mmoe.table3 import ARCHITECTURES, PUBLISHED, read

TABLE = EXPERIMENTS["mmoe-table3"].presets()["cpu"]
# Above all others at every time; below Shared-Bottom; the same.
OFFSETS = {
    "Shared-Bottom": 0.02,
    "L2-Constrained": 0.0,
    "Cross-Stitch": 0.01,
    "OMoE": 0.02,
    "MMoE": 0.04,
}


def report_of(spread=0.001, **changes):
    results = Results(TABLE, "cpu")
    rng = np.random.default_rng(0)
    for arm, offset in (OFFSETS | changes).items():
        for seed in range(8):
            curve = 0.8 + np.arange(9) / 100 + offset + spread * rng.standard_normal(9)
            numbers = {"auc": curve, "r2": curve - 0.5, "objective": 0.1}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return TABLE.report(results)


def judgements(**changes):
    return [claim.holds for claim in report_of(**changes).claims]


def test_claims():
    assert judgements() == [True] * 4
    assert judgements(MMoE=0.01) == [False, False, True, True]
    assert judgements(**{"L2-Constrained": 0.03}) == [True, True, False, True]
    assert judgements(spread=0.5) == [None] * 4


def test_rows_are_those_of_three_times():
    report = report_of(spread=0.0)
    areas, _ = report.tables
    rows = {row[0]: row[1:] for row in areas.rows}
    # After the epochs 3, 6 and 9.
    assert rows["MMoE"][1::2] == [f"{a:.4f} ± 0.0000" for a in (0.86, 0.89, 0.92)]
    assert rows["MMoE"][::2] == ["0.6894", "0.6897", "0.6908"]
    assert report.claims[1].paper == "0.08978, 0.09263, 0.09362"
    assert report.claims[3].paper == (
        "AUC 0.6880, 0.6885, 0.6899 against 0.6879, 0.6888, 0.6900; "
        "R-squared 0.08949, 0.09112, 0.09332 against 0.08812, 0.09159, 0.09287"
    )


def test_the_paper_has_mmoe_first_at_all_times():
    for numbers in PUBLISHED.values():
        assert list(numbers) == list(ARCHITECTURES)
        for step in range(3):
            assert max(numbers, key=lambda arm: numbers[arm][step]) == "MMoE"


def test_what_is_kept():
    logs = [
        {"val_engagement_AUC": 0.7, "val_engagement_mean_squared_error": 0.2},
        {"val_engagement_AUC": 0.8, "val_engagement_mean_squared_error": 0.1},
    ]
    assert read(logs, variance=0.25) == {
        "objective": pytest.approx(0.2),
        "auc": [0.7, 0.8],
        "r2": [0.2, 0.6],
    }


def test_sizes():
    counts = {
        arm: num_trained(TABLE._build(arm, 0, learning_rate=0.1)) for arm in TABLE.arms
    }
    network, towers = 20 * 32 + 32 + 32 * 16 + 16, 2 * (16 + 1)
    assert counts["Shared-Bottom"] == network + towers
    assert counts["L2-Constrained"] == 2 * network + towers
    # Cross-stitch units mix two networks after both layers.
    assert counts["Cross-Stitch"] == 2 * network + towers + 2 * 4
    experts = 20 * 32 + 32 + 8 * (32 * 16 + 16)
    assert counts["OMoE"] == experts + 8 * 32 + towers
    assert counts["MMoE"] == experts + 2 * 8 * 32 + towers
