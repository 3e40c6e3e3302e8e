"""What Table 4 makes of the runs of Figure 6."""

import pytest

from experiments import Results, Run
from papers.dselectk.fig6 import Fig6
from papers.dselectk.table4 import Table4


def made_up(share, experts):
    """Results in which selectors decide after a share of the run."""
    results = Results(Table4(seeds=2), "made-up")
    for arm in results.experiment.arms:
        ours = arm.startswith("DSelect-k")
        for seed in range(2):
            numbers = {
                "admissible": not ours or share is not None,
                "decided": share if ours else None,
                "evaluated": experts if ours else 4.0,
            }
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


def test_runs_are_those_of_figure_6():
    for preset in ("smoke", "cpu", "paper"):
        ours, theirs = Table4.presets()[preset], Fig6.presets()[preset]
        assert ours.config == theirs.config
        assert ours.source == theirs.source == theirs.name


def test_flops():
    experiment = Table4(embedding=3, units=5, tower=7)
    # Experts have 6 inputs; a product is two operations, once forth and twice back.
    expert, tower = 2 * 3 * 6 * 5, 2 * 3 * (5 * 7 + 7)
    assert experiment._flops(4) == 4 * expert + 2 * tower


@pytest.mark.parametrize(
    ("share", "experts", "holds"),
    [
        (0.0001, 2.0, [True, True, True, False, False, True]),
        (0.1, 6.0, [True, False, False, True, True, False]),
        # Gates that have not decided evaluate more experts: that is no success.
        (None, 8.0, [False, False, False, None, None, False]),
    ],
)
def test_claims(share, experts, holds):
    results = made_up(share, experts)
    report = results.experiment.report(results)
    assert [claim.holds for claim in report.claims] == holds
    assert report.claims[0].paper == "11.37 %"
    assert len(report.tables[0].rows) == 3
