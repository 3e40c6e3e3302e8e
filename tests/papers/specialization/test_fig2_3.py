"""Which experts are used, and by which kinds of images, on made-up runs."""

import numpy as np
import pytest

from experiments import Results, Run
from papers.specialization._splits import (
    JOINT,
    SPLIT,
    SPLITS,
    arm_of,
    follows,
    has_both_kinds,
    share_by_split,
    used,
)
from papers.specialization.fig2_3 import Fig2And3

DATA = "fmnist_mnist"
# Six classes of clothes, six of digits, six experts.
PARTED = np.repeat([[5, 5, 1, 0, 0, 0], [0, 0, 1, 5, 5, 5]], 6, axis=0)
MIXED = np.repeat([[10, 0, 0, 0, 0, 0]], 12, axis=0)
FOUND = 10 * np.eye(6, dtype=int)[list(SPLITS[DATA])]


def test_used_experts_are_counted():
    assert used(PARTED) == 6
    assert used(MIXED) == 1
    assert used([[990, 10]]) == 2
    assert used([[991, 9]]) == 1


def test_an_expert_with_both_kinds():
    assert has_both_kinds(PARTED)
    assert has_both_kinds(MIXED)
    assert not has_both_kinds(FOUND)
    # Nine of ten images are of one kind: a tenth is enough. Fewer are not.
    few = np.zeros((12, 1), int)
    few[0], few[6] = 90, 10
    assert has_both_kinds(few)
    few[0] = 91
    assert not has_both_kinds(few)


def test_share_by_split_by_hand():
    table = np.array([[3, 1], [2, 2]])
    assert share_by_split(table, (0, 1)) == pytest.approx(5 / 8)
    assert follows([[3, 1], [1, 3]], (0, 1))
    assert not follows([[3, 1], [3, 1]], (0, 1))


def test_splits_are_those_of_figure_3():
    digits = np.array(SPLITS["mnist"])
    pairs = [np.flatnonzero(digits == expert).tolist() for expert in range(5)]
    assert pairs == [[0, 7], [1, 9], [2, 4], [3, 8], [5, 6]]
    assert np.bincount(SPLITS[DATA]).tolist() == [2] * 6


@pytest.mark.parametrize(
    ("joint", "split", "holds"),
    [(MIXED, FOUND, [True, True, True]), (FOUND, MIXED, [False, False, False])],
)
def test_claims(joint, split, holds):
    experiment = Fig2And3(seeds=2, datasets=(DATA,))
    results = Results(experiment, "test")
    for kind, table in ((JOINT, joint), (SPLIT, split)):
        numbers = {
            "gate_error": 0.1,
            "gate_mutual_information": 1.0,
            "gate_sample_entropy": 0.5,
            "gate_utilization_entropy": 1.5,
            "gate_table": table,
        }
        for seed in range(2):
            results.add(Run(arm_of(DATA, kind), seed, {}, numbers, 1.0), {})
    report = experiment.report(results)
    assert [claim.holds for claim in report.claims] == holds
    assert all(claim.source for claim in report.claims)
    share = "100%" if holds[0] else "17%"
    assert report.tables[0].rows[1][-1] == share
    assert report.tables[0].rows[0][:3] == ["FMNIST + MNIST", JOINT, "0.100 ± 0.000"]
