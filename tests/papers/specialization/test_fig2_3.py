"""Which experts are used, and by which kinds of images."""

import numpy as np
import pytest

from dselectk_keras.experiments import Results, Run
from papers.specialization.fig2_3 import Fig2And3, information_on_kinds, used

# Six classes of clothes, six of digits, four experts.
PARTED = np.repeat([[5, 5, 0, 0], [0, 0, 5, 5]], 6, axis=0)
MIXED = np.repeat([[10, 0, 0, 0]], 12, axis=0)


def test_used_experts_are_counted():
    assert used(PARTED) == 4
    assert used(MIXED) == 1
    assert used([[990, 10]]) == 2
    assert used([[991, 9]]) == 1


def test_information_on_kinds_by_hand():
    assert information_on_kinds(PARTED) == pytest.approx(1)
    assert information_on_kinds(MIXED) == pytest.approx(0)
    # Expert 0 has all clothes and half of the digits: 1 - 0.75 h(1/3) bits.
    table = np.repeat([[10, 0], [5, 5]], 6, axis=0)
    expected = 1 - 0.75 * (np.log2(3) - 2 / 3)
    assert information_on_kinds(table) == pytest.approx(expected)


@pytest.mark.parametrize(("table", "holds"), [(PARTED, False), (MIXED, True)])
def test_claims(table, holds):
    experiment = Fig2And3(seeds=2, num_experts=(("fmnist_mnist", 4),))
    results = Results(experiment, "test")
    numbers = {
        "error": 0.1,
        "mutual_information": 1.0,
        "sample_entropy": 0.5,
        "utilization_entropy": 1.5,
        "table": table,
        "used": used(table),
        "kinds": information_on_kinds(table),
    }
    for seed in range(2):
        results.add(Run("FMNIST + MNIST", seed, {}, numbers, 1.0), {})
    report = experiment.report(results)
    assert [claim.holds for claim in report.claims] == [holds, holds]
    row = report.tables[0].rows[0]
    assert row[:2] == ["FMNIST + MNIST", 4]
    assert row[2] == "0.100 ± 0.000"
