"""Dense experts whose kernels come from shared factors."""

import itertools

import numpy as np
import pytest
from checks import assert_close
from helpers import built, numbers, numpy, refusals
from keras import ops

from dselectk_keras import DenseExperts
from dselectk_keras.baselines import L2Constrained, TuckerExperts


def tucker(shape, *arguments, seed=1, **settings):
    bank = TuckerExperts(*arguments, **settings)
    bank.build(shape)
    bank.set_weights([numbers(weight.shape, seed=seed) for weight in bank.weights])
    return bank


def kernels_by_hand(core, inputs, units, experts):
    """The sum over all triples of ranks, one by one."""
    kernels = np.zeros((len(experts), len(inputs), len(units)), "float32")
    for a, b, c in np.ndindex(core.shape):
        kernels += core[a, b, c] * np.einsum(
            "i,d,h->idh", experts[:, c], inputs[:, a], units[:, b]
        )
    return kernels


@pytest.mark.parametrize(
    ("shape", "units", "settings"),
    [
        ((2, 5), [4], {"ranks": (3, 2, 2)}),
        ((2, 5), [4, 3], {"ranks": (2, 3, 3), "activation": "tanh"}),
        ((2, 6, 5), [4, 3], {"ranks": (2, 2, 2)}),
        ((2, 3, 5), [4, 2], {"shared_input": False, "activation": ["relu", None]}),
    ],
)
def test_equals_dense_experts_with_the_kernels_of_the_sum(shape, units, settings):
    bank = tucker(shape, 3, units, **settings)
    settings = {key: value for key, value in settings.items() if key != "ranks"}
    dense = DenseExperts(3, units, **settings)
    dense.build(shape)
    weights = [numpy(weight) for weight in bank.weights]
    layers = [weights[i : i + 5] for i in range(0, len(weights), 5)]
    pairs = ((kernels_by_hand(*each[:4]), each[4]) for each in layers)
    dense.set_weights([*itertools.chain(*pairs)])
    x = numbers(shape)
    assert_close(bank(x), dense(x), rtol=1e-4, atol=1e-4)
    assert_close(bank.parameters(), dense.parameters(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ranks", [(25, 20, 10), (50, 40, 20), None])
def test_every_expert_starts_with_the_variance_of_glorot_uniform(ranks):
    kernels = numpy(built(TuckerExperts(20, [40], ranks), 50).kernel(0))
    assert_close(kernels.var(), 2 / 90, rtol=0.1)
    assert_close(kernels.var(axis=(1, 2)), 2 / 90, rtol=0.35)
    assert abs(kernels.mean()) < 0.01


def test_experts_start_with_that_variance_for_small_ranks():
    banks = (TuckerExperts(4, [3], ranks=(1, 2, 1)) for _ in range(200))
    kernels = [numpy(built(bank, 5).kernel(0)) for bank in banks]
    assert_close(np.mean(np.square(kernels), axis=0), 2 / 8, rtol=0.4)
    assert_close(np.var(kernels), 2 / 8, rtol=0.1)


@pytest.mark.backend_independent
def test_the_default_is_half_of_each_dimension():
    bank, single = built(TuckerExperts(2, [4, 5]), 7), built(TuckerExperts(1, [1]), 1)
    shapes = [tuple(weight.shape) for weight in (*bank.weights, *single.weights[:2])]
    assert shapes[:5] == [(4, 2, 2), (7, 4), (4, 2), (2, 2), (2, 4)]
    assert shapes[5:10] == [(2, 3, 2), (4, 2), (5, 3), (2, 2), (2, 5)]
    assert shapes[10:] == [(1, 1, 1), (1, 1)]


@pytest.mark.backend_independent
def test_is_a_bank_like_any_other():
    bank, x = tucker((2, 5), 3, [4, 2], ranks=(2, 2, 2)), numbers((2, 5))
    found = numpy(bank.call_merged(x, ops.convert_to_tensor([0.0, 1.0, 0.0])))
    assert_close(found, numpy(bank(x))[:, 1], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="TuckerExperts cannot be sliced"):
        bank.sliced([0])
    assert bank.resized(5)(x).shape == (2, 5, 2)
    assert L2Constrained(bank.resized(4), 0.1)(x).shape == (2, 4, 2)


def of_ranks(ranks=None, **settings):
    built(TuckerExperts(3, [4, 2], ranks, **settings), 5)


test_settings_that_cannot_be_are_refused = refusals(
    (of_ranks, "Factorized kernels.*: gated", {"gated": True}),
    (of_ranks, "Factorized k.*: kernel_initializer", {"kernel_initializer": True}),
    (
        of_ranks,
        r"layer 0 .* rank 6 for 5 inputs, ranks=\(6, 1, 1\). Lower it to 5",
        ((6, 1, 1),),
    ),
    (of_ranks, "layer 1 .* rank 3 for 2 units", ((1, 3, 1),)),
    (of_ranks, "rank 4 for 3 experts", ((1, 1, 4),)),
    (of_ranks, r"three numbers, \(inputs, units, experts\)", ((1, 1),)),
    (of_ranks, "`ranks` must be a positive integer", ([(1, 1, 1)],), ((0, 1, 1),)),
)
