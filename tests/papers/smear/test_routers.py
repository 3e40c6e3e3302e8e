"""The routers between frozen blocks: that each trains, and what each costs."""

import keras
import numpy as np
import pytest

from papers.smear import _backbone
from papers.smear._routers import (
    ABLATED,
    OURS,
    ROUTED_BY,
    ROUTERS,
    Adapters,
    build_model,
    routed_layers,
)

# A few steps of many models: TensorFlow would trace graphs most of the time.

SHARED = Adapters(num_experts=6, units=2, num_steps=10)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def blocks():
    network = _backbone.resnet18((8, 8, 1), width=8)
    return _backbone.cut(network, 2).blocks


def inputs_of(router, size=12):
    found = {"features": RNG.normal(size=(size, 1, 1, 64)).astype("float32")}
    if router in ROUTED_BY:
        found[ROUTED_BY[router]] = (np.arange(size)[:, None] % 6).astype("int32")
    return found


def values_of(model):
    return [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]


@pytest.mark.parametrize("router", ROUTERS + ABLATED + OURS)
def test_trains_all_but_the_frozen(router, blocks):
    model = build_model(router, blocks, SHARED, 3, 0.1)
    layers = routed_layers(model)
    assert len(layers) == len(blocks)
    frozen = [layer for layer in model.layers if layer.name.startswith("frozen")]
    before = [weight for layer in frozen for weight in layer.get_weights()]
    trained = values_of(model)
    data = inputs_of(router)
    model.fit(data, np.arange(12)[:, None] % 3, verbose=0)
    after = [weight for layer in frozen for weight in layer.get_weights()]
    for now, then in zip(after, before, strict=True):
        np.testing.assert_array_equal(now, then)
    pairs = list(zip(values_of(model), trained, strict=True))
    assert all(np.isfinite(now).all() for now, _ in pairs)
    assert any(not np.array_equal(now, then) for now, then in pairs)
    predictions = model.predict(data, verbose=0)
    np.testing.assert_allclose(predictions.sum(-1), 1, rtol=1e-4)


@pytest.mark.parametrize("router", ["Tag", "Top-k", "top-2", "Ensemble"])
def test_dispatch_predicts_the_same(router, blocks):
    dense = build_model(router, blocks, SHARED, 3, 0.1)
    shared = Adapters(6, 2, 10, dispatch=True)
    sparse = build_model(router, blocks, shared, 3, 0.1)
    sparse.set_weights(dense.get_weights())
    data = inputs_of(router)
    np.testing.assert_allclose(
        dense.predict(data, verbose=0), sparse.predict(data, verbose=0), atol=1e-5
    )


def test_flops_by_hand():
    # One adapter: 2 x 10 positions x 5 features x 2 units, down and up.
    one, scores, merge = 400, 2 * 6 * 5, 2 * 6 * (2 * 5 * 2)
    wanted = {
        "1x compute": one,
        "Tag": one,
        "Hash": one,
        "Adamix": one,
        "Latent Skills": one,
        "Top-k": one + scores,
        "top-2": 2 * one + scores,
        "Ensemble": 6 * one + scores,
        "SMEAR": one + merge + scores,
        "SMEAR, no dropout": one + merge + scores,
        "SMEAR 2x": one + 2 * merge + 2 * scores,
        # Three bits and a share; without a count, all experts.
        "DSelect-k": 6 * one + 2 * 4 * 5,
        "Soft MoE": 6 * 40 + 3 * 10 * scores,
    }
    for router, flops in wanted.items():
        assert SHARED.flops(router, positions=10, features=5) == flops, router
    assert SHARED.flops("DSelect-k", 10, 5, used=2.5) == 2.5 * one + 2 * 4 * 5
    # As many parameters as six adapters of 27 have: 162 = 11 u + 5.
    assert SHARED.flops("1x parameters", 10, 5) == 4 * 10 * 5 * 14


def test_dropout_is_turned_on_and_off():
    rates = {
        router: SHARED.gate(router, 0).expert_dropout
        for router in (*ABLATED, "SMEAR", "SMEAR 2x", "Top-k", "ST-Gumbel", "REINFORCE")
    }
    assert rates == {
        "SMEAR, no dropout": 0.0,
        "Top-k, no dropout": 0.0,
        "ST-Gumbel, dropout": 0.1,
        "REINFORCE, dropout": 0.1,
        "SMEAR": 0.1,
        "SMEAR 2x": 0.1,
        "Top-k": 0.1,
        "ST-Gumbel": 0.0,
        "REINFORCE": 0.0,
    }


def test_twice_the_experts_and_shared_tags():
    assert SHARED.bank(3, "SMEAR 2x").num_experts == 12
    assert SHARED.bank(3, "SMEAR").num_experts == 6
    tags = Adapters(3, 2, 10, tags=(0, 1, 1)).gate("Tag", 0)
    assert tags.experts_of_tags == [0, 1, 1]
