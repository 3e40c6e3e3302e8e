"""Routers of adapters are looked at, and scored over all images."""

import dataclasses
import types

import numpy as np

from research.papers import EXPERIMENTS
from research.papers.smear import _comparison, _routers


def test_all_routers_have_weights_to_look_at():
    smoke = EXPERIMENTS["smear-table3-small"].presets()["smoke"]
    every = _routers.ROUTERS + _routers.ABLATED + _routers.OURS
    smoke = dataclasses.replace(smoke, routers=every, num_test=1, num_adapters=1)
    inputs, _ = smoke._prepared.test
    for router in every:
        copy = types.SimpleNamespace(model=smoke._model(router))
        ((predicted, looked),) = _routers.look_at_copies([copy], inputs)
        assert predicted.shape == (smoke.num_experts,)
        experts = _routers.num_experts_of(router, smoke.num_experts)
        is_single = router in _routers.SINGLE
        assert [None if each is None else each.shape for each in looked] == [
            None if is_single else (smoke.num_experts, experts)
        ]


def test_the_accuracy_is_that_of_all_images_though_domains_differ_in_size():
    domains = np.array([0, 0, 0, 0, 1, 2, 3, 4, 5, 5])
    hits = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 1], bool)
    found = _comparison._numbers(hits, [], domains)
    assert found["accuracy"] == 0.4
    assert found["accuracies"] == [0.75, 0.0, 0.0, 0.0, 0.0, 0.5]
