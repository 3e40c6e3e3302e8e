"""What Table 4 makes of the runs of Figure 5."""

import pytest
from matplotlib import pyplot as plt

from dselectk_keras.experiments import Results, Run
from papers.dselectk.fig5 import Fig5
from papers.dselectk.table4 import Table4, costs, flops


def made_up(**changes):
    experiment = Table4(seeds=2)
    results = Results(experiment, "cpu")
    for arm, (method, count) in experiment.arms.items():
        if "DSelect-k" not in method:
            continue
        for seed in range(2):
            numbers = {
                "experts": 4.0,
                "used": count // 4,
                "decided": 3950 + 790 * seed,
                "open": 0.5,
                "task_open": 0.25,
                "steps": [0, 3950, 7900],
                "share": [0.0, 0.5, 1.0],
                **changes,
            }
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


def test_runs_are_those_of_figure_5():
    for preset in ("smoke", "cpu", "paper"):
        ours, theirs = Table4.presets()[preset], Fig5.presets()[preset]
        assert ours.config == theirs.config
        assert ours.source == theirs.name


def test_flops():
    # An expert is 10 times 4 products, two operations each, forth and once back; a
    # weight in a mixture is a product forth and two back.
    assert flops(1, 0) == 2 * 2 * 10 * 4
    assert flops(0, 1) == 3 * 2
    assert flops(2, 3) == 320 + 18


def test_costs():
    numbers = {"experts": 3.0, "used": 6, "open": 0.5, "task_open": 0.25}
    found = costs(numbers, 32)
    top_k = 160 * 8 + 6 * 4 * 32
    dense = 160 * 8 + 6 * 8 * 32
    sparse = 160 * 6 + 6 * 3 * 32
    assert found["dense"] == pytest.approx(dense / top_k)
    assert found["conditional"] == pytest.approx((dense + sparse) / 2 / top_k)
    assert found["dense_task"] == pytest.approx(2.0)
    assert found["conditional_task"] == pytest.approx(0.25 * 2 + 0.75)


def test_claims_and_table():
    report = (results := made_up()).experiment.report(results)
    assert [claim.holds for claim in report.claims] == [True, True]
    assert "one stage: in 8 of 8 runs" in report.claims[0].ours
    (table,) = report.tables
    assert len(table.rows) == 8
    assert table.rows[0][:6] == [
        "DSelect-k, one stage",
        16,
        4,
        "2 of 2",
        "4345 ± 395",
        "55.0 ± 5.0",
    ]
    figure = report.pictures[0].draw()
    assert len(figure.axes) == 2
    plt.close(figure)


def test_claims_fail_if_selectors_stay_open():
    results = made_up(decided=None, open=1.0, task_open=1.0)
    report = results.experiment.report(results)
    assert [claim.holds for claim in report.claims] == [False, False]
    assert report.tables[0].rows[0][3:6] == ["0 of 2", "", ""]
