"""Routing distributions: how far apart domains are, and what follows."""

import dataclasses

import numpy as np

from experiments import Results, Run
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


def test_an_expert_of_its_own():
    own = weights_of(0, 0, 0, 0, 0, 3)
    assert fig3.own_expert(own)
    assert not fig3.own_expert(weights_of(0, 0, 1, 1, 2, 2))
    assert not fig3.own_expert(np.full((6, 6), 1 / 6))


def claims_of(**layers):
    """Whether claims hold, of made-up routing: the domains' experts, or their weights,
    by layer.
    """
    smoke = fig3.Fig3.presets()["smoke"]
    experiment = dataclasses.replace(smoke, routers=tuple(layers))
    results = Results(experiment, "smoke")
    for arm in experiment.arms:
        routing = [
            (experts if np.ndim(experts) == 2 else weights_of(*experts)).tolist()
            for experts in layers[arm]
        ]
        for seed in range(2):
            results.add(Run(arm, seed, {}, {"routing": routing}, 1.0), {})
    report = experiment.report(results)
    (table,) = report.tables
    assert [row[0] for row in table.rows] == list(layers)
    return [claim.holds for claim in report.claims]


PAIRED, SPREAD, ONE = (0, 0, 1, 1, 2, 2), tuple(range(6)), (0,) * 6


def test_claims_about_smear():
    # One-hot weights keep to few experts, and no domain uses all evenly.
    assert claims_of(SMEAR=[PAIRED, SPREAD])[:3] == [True, True, False]
    # Two layers are enough, and two domains that use all experts.
    even = np.full((6, 6), 1 / 6)
    two_even = np.concatenate([even[:2], weights_of(0, 0, 1, 1)])
    assert claims_of(SMEAR=[even, two_even, two_even])[0] is True
    assert claims_of(SMEAR=[even, even, two_even])[0] is False
    assert claims_of(SMEAR=[two_even])[2] is True
    one_even = np.concatenate([even[:1], weights_of(0, 0, 1, 1, 1)])
    assert claims_of(SMEAR=[one_even])[2] is False
    assert claims_of(SMEAR=[ONE, ONE])[:3] == [True, None, False]
    crossed = (0, 1, 0, 1, 2, 3)
    assert claims_of(SMEAR=[crossed])[1] is False


def test_claims_about_the_others():
    own = (0, 0, 0, 0, 0, 3)
    estimators = ("ST-Gumbel", "REINFORCE", "DSelect-k")
    found = claims_of(
        **{"Top-k": [SPREAD, ONE]},
        **{key: [own, ONE, ONE] for key in estimators},
        **{key: [SPREAD] for key in ("SMEAR", "Latent Skills", "Ensemble")},
    )
    # Each domain has an expert of its own in half of Top-k's layers.
    assert found[3:7] == [True, True, False, True]
    found = claims_of(
        **{"Top-k": [ONE, SPREAD]},
        **{key: [own, own] for key in estimators},
        **{key: [ONE] for key in ("SMEAR", "Latent Skills", "Ensemble")},
    )
    assert found[3:7] == [False, False, True, False]


def test_what_was_not_run_fails():
    found = claims_of(SMEAR=[SPREAD])
    # Images are not compared with texts.
    assert found[3:] == [False] * 4 + [None, False]


def test_others_part_the_domains_less_than_smear():
    estimators = {arm: [ONE] for arm in fig3.ESTIMATORS}
    assert claims_of(SMEAR=[PAIRED], **estimators)[-1] is True
    assert claims_of(SMEAR=[ONE], **estimators)[-1] is None
    assert claims_of(SMEAR=[PAIRED], **{**estimators, "Top-k": [PAIRED]})[-1] is None
    assert claims_of(SMEAR=[ONE], **{**estimators, "Top-k": [PAIRED]})[-1] is False
    assert claims_of(**estimators)[-1] is False
