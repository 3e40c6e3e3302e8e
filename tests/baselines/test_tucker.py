"""Dense experts whose kernels come from shared factors."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import DenseExperts, L2Constrained, TuckerExperts


def built(shape, *arguments, seed=1, **settings):
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
    bank = built(shape, 3, units, **settings)
    settings = {key: value for key, value in settings.items() if key != "ranks"}
    dense = DenseExperts(3, units, **settings)
    dense.build(shape)
    weights = [numpy(weight) for weight in bank.weights]
    expected = []
    for layer in range(len(units)):
        factors = weights[5 * layer :][:5]
        expected += [kernels_by_hand(*factors[:4]), *factors[4:]]
    dense.set_weights(expected)
    x = numbers(shape)
    np.testing.assert_allclose(numpy(bank(x)), numpy(dense(x)), rtol=1e-4, atol=1e-4)
    for found, other in zip(bank.parameters(), dense.parameters(), strict=True):
        np.testing.assert_allclose(numpy(found), numpy(other), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gated", "kernel_initializer"])
def test_settings_of_kernels_of_their_own_are_refused(name):
    with pytest.raises(ValueError, match=f"Factorized kernels.*Received: {name}"):
        TuckerExperts(3, [4, 2], **{name: True})


def test_full_ranks_can_be_any_kernels():
    kernels, bias = numbers((3, 5, 4)), numbers((3, 4), seed=1)
    bank, dense = TuckerExperts(3, [4], ranks=(5, 4, 3)), DenseExperts(3, [4])
    bank.build((None, 5))
    dense.build((None, 5))
    dense.set_weights([kernels, bias])
    bank.set_weights(
        [kernels.transpose(1, 2, 0), np.eye(5), np.eye(4), np.eye(3), bias]
    )
    x = numbers((2, 5), seed=2)
    np.testing.assert_allclose(numpy(bank(x)), numpy(dense(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ranks", [(25, 20, 10), (50, 40, 20), None])
def test_every_expert_starts_with_the_variance_of_glorot_uniform(ranks):
    bank = TuckerExperts(20, [40], ranks)
    bank.build((None, 50))
    kernels = numpy(bank.kernel(0))
    np.testing.assert_allclose(kernels.var(), 2 / 90, rtol=0.1)
    np.testing.assert_allclose(kernels.var(axis=(1, 2)), 2 / 90, rtol=0.35)
    assert abs(kernels.mean()) < 0.01


def test_small_ranks_start_with_that_variance_over_many_draws():
    kernels = []
    for _ in range(200):
        bank = TuckerExperts(4, [3], ranks=(1, 2, 1))
        bank.build((None, 5))
        kernels.append(numpy(bank.kernel(0)))
    np.testing.assert_allclose(np.mean(np.square(kernels), axis=0), 2 / 8, rtol=0.4)
    np.testing.assert_allclose(np.var(kernels), 2 / 8, rtol=0.1)


def test_a_global_seed_repeats_the_draws():
    def weights(seed):
        keras.utils.set_random_seed(seed)
        bank = TuckerExperts(3, [4], ranks=(2, 2, 2))
        bank.build((None, 5))
        return np.concatenate([numpy(weight).ravel() for weight in bank.weights[:4]])

    np.testing.assert_array_equal(weights(1), weights(1))
    assert (weights(1) != weights(2)).all()


def test_the_default_is_half_of_each_dimension():
    bank = TuckerExperts(2, [4, 5])
    bank.build((None, 7))
    shapes = [tuple(weight.shape) for weight in bank.weights]
    assert shapes[:5] == [(4, 2, 2), (7, 4), (4, 2), (2, 2), (2, 4)]
    assert shapes[5:] == [(2, 3, 2), (4, 2), (5, 3), (2, 2), (2, 5)]
    single = TuckerExperts(1, [1])
    single.build((None, 1))
    assert [tuple(weight.shape) for weight in single.weights[:2]] == [(1, 1, 1), (1, 1)]


def test_gradients_reach_every_factor():
    bank = TuckerExperts(3, [4, 2], (2, 2, 2), "tanh")
    x = numbers((5, 3))
    bank(x)
    _, gradients = value_and_gradients(
        lambda: [ops.sum(bank(x) ** 2)], bank.trainable_variables
    )
    assert len(gradients) == 10
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_is_a_bank_like_any_other():
    bank, x = built((2, 5), 3, [4, 2], ranks=(2, 2, 2)), numbers((2, 5))
    np.testing.assert_allclose(
        numpy(bank.call_merged(x, ops.convert_to_tensor([0.0, 1.0, 0.0]))),
        numpy(bank(x))[:, 1],
        rtol=1e-5,
        atol=1e-6,
    )
    with pytest.raises(ValueError, match="TuckerExperts cannot be sliced"):
        bank.sliced([0])
    assert bank.resized(5)(x).shape == (2, 5, 2)
    assert L2Constrained(bank.resized(4), 0.1)(x).shape == (2, 4, 2)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_works_in_half_precision(policy):
    bank = TuckerExperts(3, [4, 2], (2, 2, 2), dtype=policy)
    outputs = bank(numbers((2, 5)))
    assert keras.backend.standardize_dtype(outputs.dtype) == bank.compute_dtype
    full = TuckerExperts(3, [4, 2], (2, 2, 2))
    full.build((None, 5))
    full.set_weights([ops.cast(weight, "float32") for weight in bank.weights])
    expected = numpy(full(numbers((2, 5))))
    found = numpy(ops.cast(outputs, "float32"))
    np.testing.assert_allclose(found, expected, atol=0.05)


@pytest.mark.parametrize("ranks", [None, (2, 2, 2)])
def test_the_config_rebuilds_the_bank(ranks):
    bank = TuckerExperts(3, [4, 2], ranks, ["relu", None], 0.2, shared_input=False)
    rebuilt = TuckerExperts.from_config(bank.get_config())
    assert rebuilt.get_config() == bank.get_config()
    assert rebuilt.ranks == ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (
            (6, 1, 1),
            r"layer 0 .* rank 6 for 5 inputs, ranks=\(6, 1, 1\). Lower it to 5",
        ),
        ((1, 3, 1), "layer 1 .* rank 3 for 2 units"),
        ((1, 1, 4), "rank 4 for 3 experts"),
    ],
)
def test_ranks_beyond_their_dimension_are_refused(ranks, text):
    with pytest.raises(ValueError, match=text):
        TuckerExperts(3, [4, 2], ranks).build((None, 5))


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((1, 1), r"three numbers, \(inputs, units, experts\)"),
        ([(1, 1, 1)], "`ranks` must be a positive integer"),
        ((0, 1, 1), "`ranks` must be a positive integer"),
    ],
)
def test_ranks_that_cannot_be_are_refused(ranks, text):
    with pytest.raises(ValueError, match=text):
        TuckerExperts(3, [4, 2], ranks)
