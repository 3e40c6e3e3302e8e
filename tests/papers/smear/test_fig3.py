"""Routing distributions: how far apart domains are, and what follows."""

import numpy as np
import pytest

from dselectk_keras.experiments import Results, Run
from papers.smear import fig3


def weights_of(*experts):
    """One domain for each expert named, with all weight on it."""
    return np.eye(6)[list(experts)]


def test_distance_by_hand():
    found = fig3.distance(np.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]]))
    np.testing.assert_allclose(found, [[0, 0.25, 0.5], [0.25, 0, 0.75], [0.5, 0.75, 0]])


def test_separation_of_pairs_that_share():
    found = fig3.separation(weights_of(0, 0, 3, 3, 5, 5))
    assert found["related"] == 0
    assert found["unrelated"] == 1
    np.testing.assert_allclose(found["information"], np.log2(3))
    np.testing.assert_allclose(found["used"], 3)


def test_separation_of_equal_weights():
    found = fig3.separation(np.full((6, 6), 1 / 6))
    for name, wanted in {"unrelated": 0, "information": 0, "used": 6}.items():
        np.testing.assert_allclose(found[name], wanted, atol=1e-9)


@pytest.mark.parametrize(
    ("layers", "holds"),
    [
        # Pairs share in one layer, and the other tells nothing apart.
        ([(0, 0, 1, 1, 2, 2), (0,) * 6], [True, True, True]),
        # Nothing is told apart anywhere.
        ([(0,) * 6, (0,) * 6], [False, False, False]),
        # Each domain has an expert of its own, in both.
        ([tuple(range(6))] * 2, [True, False, False]),
    ],
)
def test_claims(layers, holds):
    experiment = fig3.Fig3.presets()["smoke"]
    results = Results(experiment, "smoke")
    routing = [weights_of(*experts).tolist() for experts in layers]
    for arm in experiment.arms:
        numbers = {"routing": routing if arm == "SMEAR" else [[], []]}
        results.add(Run(arm, 0, {}, numbers, 1.0), {})
    report = experiment.report(results)
    assert [claim.holds for claim in report.claims] == holds
    (table,) = report.tables
    assert [row[0] for row in table.rows] == ["SMEAR"]
