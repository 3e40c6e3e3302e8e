"""Labels correlate as they are said to."""

import numpy as np
import pytest

from experiments import Job, Results, Run
from papers.mmoe.fig2 import Fig2


def report_of(both, *linear):
    experiment = Fig2(seeds=1, points=len(both))
    results = Results(experiment, "test")
    p = np.linspace(0, 1, len(both))
    for arm, runs in {"linear and sines": [both], "linear": linear}.items():
        for seed, values in enumerate(runs):
            results.add(Run(arm, seed, {}, {"p": p, "correlation": values}, 1.0), {})
    return experiment.report(results)


def test_the_claims_are_judged():
    report = report_of([0.01, 0.3, 1.0], [0.01, 0.49, 1.0])
    assert [claim.holds for claim in report.claims] == [True, True, True]
    assert "lowest mean correlation is 0.300" in report.claims[0].ours
    assert "from 0.01 at p = 0 to 1.00 at p = 1" in report.claims[1].ours
    assert "at most 0.010. The noise alone accounts for 0.010" in report.claims[2].ours

    report = report_of([0.4, 0.3, 1.0], [0.0, 0.4, 1.0])
    assert [claim.holds for claim in report.claims] == [True, False, False]
    assert report_of([0.0, -0.1, 1.0], [0.0, 0.5, 1.0]).claims[0].holds is False


def test_the_table_has_the_nearest_points_and_two_standard_deviations():
    report = report_of([0.0, 0.1, 0.3, 0.6, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0])
    rows = report.tables[0].rows
    assert [row[0] for row in rows] == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert rows[2] == ["0.50", "0.300 ± 0.000", "0.500 ± 0.000"]
    rows = report_of([0.0, 0.1], [0.2, 0.4], [0.4, 0.8]).tables[0].rows
    # Of 0.2 and 0.4 the standard deviation is 0.1.
    assert rows[0] == ["0.00", "0.000 ± 0.000", "0.300 ± 0.200"]


def test_without_sines_the_correlation_is_the_cosine_but_for_the_noise():
    experiment = Fig2(points=3)
    found = experiment.run("linear", [Job(3, {})])[0]
    assert found["correlation"] == pytest.approx([0, 0.495, 0.99], abs=0.03)
    assert found["correlation"][-1] < 0.995
