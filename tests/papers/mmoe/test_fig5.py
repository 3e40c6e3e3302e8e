"""The claims on how losses are spread, on made-up losses."""

import numpy as np
import pytest

from experiments import Results, Run
from papers import EXPERIMENTS
from papers.mmoe._three_models import arm_of
from papers.mmoe.fig5 import Fig5, _alike, deviation, spread

# How far the losses of the runs lie above 0.1, by model and correlation.
SPREADS = {
    "Shared-Bottom": (0.20, 0.20),
    "OMoE": (0.10, 0.02),
    "MMoE": (0.02, 0.02),
}


def report_of(spreads, lowest=0.1, seeds=40):
    experiment = Fig5(seeds=seeds, correlations=(0.5, 1.0))
    results = Results(experiment, "test")
    for model, by_p in spreads.items():
        for p, width in zip(experiment.correlations, by_p, strict=True):
            for seed in range(seeds):
                low = lowest if model == "MMoE" else 0.1
                numbers = {"loss": low + width * seed / max(1, seeds - 1)}
                results.add(Run(arm_of(model, p), seed, {}, numbers, 1.0), {})
    return experiment.report(results)


def test_claims_hold_as_in_the_paper():
    assert [claim.holds for claim in report_of(SPREADS).claims] == [True] * 3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"MMoE": (0.02, 0.6)}, [False, True, True]),
        ({"OMoE": (0.01, 0.02)}, [True, False, True]),
        ({"OMoE": (0.03, 0.10)}, [True, False, True]),
        # Less robust than MMoE at p = 0.5, but not less than at p = 1.
        ({"OMoE": (0.10, 0.10), "MMoE": (0.02, 0.09)}, [True, None, True]),
    ],
)
def test_claims_fail_one_by_one(changes, expected):
    report = report_of(SPREADS | changes)
    assert [claim.holds for claim in report.claims] == expected


def test_a_single_poor_run_leaves_open_whether_models_are_as_robust():
    omoe, mmoe = (0.1 + 0.0001 * np.arange(40.0) for _ in range(2))
    assert _alike(omoe, mmoe) is True
    omoe[0] = 0.9
    assert _alike(omoe, mmoe) is None
    assert _alike(mmoe, omoe) is None
    omoe[::2] = 0.9
    assert _alike(omoe, mmoe) is False
    # A smaller spread is as robust, and more.
    assert _alike(mmoe, omoe) is True


def test_lowest_losses_may_differ():
    assert report_of(SPREADS, lowest=0.05).claims[2].holds is False


def test_rows_by_hand():
    row = report_of(SPREADS, seeds=4).tables[0].rows[0]
    # 0.1, 0.1667, 0.2333 and 0.3 lie 0.1, 0.0333, 0.0333 and 0.1 from their median.
    assert row[:-2] == ["0.5", "Shared-Bottom", 4, "0.1", "0.2", "0.3"]
    # The squares of 0.1, 0.0333, 0.0333 and 0.1 sum to 0.0222: a third is 0.086 ** 2.
    assert row[-2].startswith("0.086 ± ")
    assert row[-1].startswith("0.067 ± ")


def test_spread_is_a_median_of_distances():
    # The median is 3, the distances are 2, 1, 0, 1 and 97.
    assert spread(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))[0] == 1
    assert np.isnan(spread(np.array([1.0]))[1])


def test_the_deviation_and_its_error():
    value, error = deviation(np.array([1.0, 2.0, 3.0]))
    assert value == 1
    assert 0 < error < 1
    assert np.isnan(deviation(np.array([1.0]))).all()


def test_a_single_run_has_no_spread_to_judge():
    assert report_of(SPREADS, seeds=1).claims[0].holds is None


def test_it_shows_the_runs_of_figure_4():
    fig4, fig5 = EXPERIMENTS["mmoe-fig4"], EXPERIMENTS["mmoe-fig5"]
    for preset, experiment in fig5.presets().items():
        other = fig4.presets()[preset]
        assert experiment.config == other.config
        assert experiment.source == other.source == "mmoe-fig4"
        assert experiment.seeds == other.seeds
