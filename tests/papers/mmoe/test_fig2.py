"""Labels correlate as they are said to."""

import numpy as np
import pytest

from dselectk_keras.experiments import Job, Results, Run
from papers.mmoe.fig2 import Fig2


def report_of(both, linear):
    experiment = Fig2(seeds=1, points=len(both))
    results = Results(experiment, "test")
    p = np.linspace(0, 1, len(both))
    for arm, values in {"linear and sines": both, "linear": linear}.items():
        results.add(Run(arm, 0, {}, {"p": p, "correlation": values}, 1.0), {})
    return experiment.report(results)


def test_the_claims_are_judged():
    report = report_of([0.01, 0.3, 1.0], [0.01, 0.49, 1.0])
    assert [claim.holds for claim in report.claims] == [True, True]
    assert "from 0.01 at p = 0 to 1.00 at p = 1" in report.claims[0].ours
    assert "at most 0.010" in report.claims[1].ours

    report = report_of([0.4, 0.3, 1.0], [0.0, 0.4, 1.0])
    assert [claim.holds for claim in report.claims] == [False, False]


def test_the_table_has_the_nearest_points():
    report = report_of([0.0, 0.1, 0.3, 0.6, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0])
    rows = report.tables[0].rows
    assert [row[0] for row in rows] == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert rows[2] == ["0.50", "0.300", "0.500"]


def test_without_sines_the_correlation_is_the_cosine():
    experiment = Fig2(points=3)
    found = experiment.run("linear", [Job(3, {})])[0]
    assert found["correlation"] == pytest.approx([0, 0.5, 1], abs=0.04)
