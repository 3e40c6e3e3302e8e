"""Whether a shared bottom does worse where tasks are less related."""

import numpy as np
import pytest

from dselectk_keras.experiments import Results, Run
from papers.mmoe.fig3 import Fig3


def report_of(losses, spread):
    """The report on losses by correlation, each of eight runs."""
    experiment = Fig3(seeds=8, correlations=tuple(losses), num_train=10, batch_size=5)
    rng = np.random.default_rng(1)
    results = Results(experiment, "test")
    for p, loss in losses.items():
        for seed, shift in enumerate(spread * rng.standard_normal(8)):
            curve = [2.0, loss + shift]
            numbers = {"loss": curve[-1], "train_loss": 0.1, "curve": curve}
            results.add(Run(f"p = {p:g}", seed, {}, numbers, 1.0), {})
    return experiment.report(results)


@pytest.mark.parametrize(
    ("losses", "spread", "holds"),
    [
        ({0.5: 0.3, 1.0: 0.1, 0.9: 0.2}, 0.001, True),
        ({0.5: 0.3, 0.9: 0.1, 1.0: 0.2}, 0.001, False),
        ({0.5: 0.3, 0.9: 0.2, 1.0: 0.1}, 0.2, None),
    ],
)
def test_the_claim_is_judged(losses, spread, holds):
    report = report_of(losses, spread)
    assert report.claims[0].holds is holds


def test_the_table_is_ordered_by_correlation():
    rows = report_of({1.0: 0.1, 0.5: 0.25}, 1e-6).tables[0].rows
    assert rows == [
        ["0.5", "0.250 ± 0.000", "0.250 ± 0.000", "0.100 ± 0.000"],
        ["1", "0.100 ± 0.000", "0.100 ± 0.000", "0.100 ± 0.000"],
    ]
