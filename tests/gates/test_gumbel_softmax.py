from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import numbers, numpy, refusals, sigmoid, weight_gradients
from keras import ops

from dselectk_keras import GumbelSoftmaxGate, Ramp, SparsityRegularizer
from dselectk_keras.ops import relaxed_bernoulli

CASES = [
    Case(
        "Gumbel-softmax",
        partial(
            GumbelSoftmaxGate,
            temperature=Ramp(2.0, 0.5, end=9),
            sparsity_reg=Ramp(0.1, 0.2, end=9),
        ),
        penalties=("sparsity",),
        sums_to_one=False,
        sum_varies=True,
        dense=True,
        training_only=("z",),
    ),
]
N, SEED = 4, 3
SHARES = np.array([0.1, 0.2, 0.3, 0.4], "float32")


def built(alpha=None, z=None, *, routing=None, **settings):
    weights = None if alpha is None else [np.float32(alpha), np.float32(z)]
    return helpers.built(GumbelSoftmaxGate(seed=SEED, **settings), N, routing, weights)


def test_inference_by_hand_where_nan_shows_and_zero_is_open():
    gate = built(np.log(SHARES), [1.0, -1.0, 0.0, 0.1])
    # An expert is open where psi exceeds one half.
    assert_close(gate.expert_weights(), [0.1, 0, 0, 0.4], rtol=1e-5)
    found = numpy(built(np.log(SHARES), [1.0, np.nan, -1.0, 2.0]).expert_weights())
    assert_close(found, [0.1, np.nan, 0.0, 0.4], rtol=1e-5)
    assert (numpy(built([0.0, -1.0, 0.0, 1.0], np.ones(N)).expert_weights()) > 0).all()


@pytest.mark.parametrize("temperature", [2.0, 0.3])
def test_training_multiplies_by_relaxed_draws(temperature):
    z = numbers((50, N))
    alpha = np.tile(np.log(SHARES), (50, 1))
    gate = built(alpha, z, num_gates=50, temperature=temperature)
    draws = relaxed_bernoulli(z, temperature, keras.random.SeedGenerator(SEED))
    found = numpy(gate.route(training=True).weights)
    assert_close(found, SHARES * numpy(draws), rtol=1e-5)


def test_cold_draws_open_with_the_probability_psi():
    z = np.tile([-2.0, -0.5, 0.5, 2.0], (5000, 1))
    gate = built(np.zeros((5000, N)), z, num_gates=5000, temperature=1e-16)
    found = numpy(gate.route(training=True).weights)
    # A quarter, to the rounding of a softmax.
    assert np.unique(found.round(6)).tolist() == [0.0, 0.25]
    assert_close((found > 0).mean(axis=0), sigmoid(z[0]), atol=0.03)


def test_the_gradient_reaches_z_through_the_draws():
    z, tau = numbers((50, N)), 0.5
    gate = built(np.tile(np.log(SHARES), (50, 1)), z, num_gates=50, temperature=tau)
    draws = numpy(relaxed_bernoulli(z, tau, keras.random.SeedGenerator(SEED)))
    _, found = weight_gradients(
        gate, lambda: ops.sum(gate.route(training=True).weights)
    )
    assert_close(found, SHARES * draws * (1 - draws) / tau, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("routing", [None, 2])
@pytest.mark.parametrize("num_gates", [None, 3])
def test_the_penalty_by_hand(reduction, routing, num_gates):
    settings = {"num_gates": num_gates, "sparsity_reg": 0.5, "reduction": reduction}
    gate, x = built(routing=routing, **settings), numbers((6, 2))
    gate(numbers((6, N, 1)), *[x] if routing else [], training=True)
    *_, kernel, bias = map(numpy, gate.trainable_weights)
    z = x @ kernel + bias if routing else bias
    wanted = 0.5 * np.log(sigmoid(z)).sum()
    if routing and reduction == "mean":
        wanted /= 6
    assert_close(gate.losses, [wanted], rtol=1e-5)


def penalty(gate):
    gate.route(training=True)
    return gate.losses[0]


def test_the_penalty_is_finite_where_psi_is_not():
    gate = built(np.zeros(N), [-200.0, 200.0, 0.0, -1000.0], sparsity_reg=1.0)
    assert_close(penalty(gate), -200 + 0 - np.log(2) - 1000, rtol=1e-6)


def test_the_penalty_pulls_harder_the_more_an_expert_is_closed():
    # Between all experts and none there are few weights of the penalty.
    z = np.array([2.0, 0.0, -2.0, -8.0])
    gate = built(np.zeros(N), z, sparsity_reg=0.5)
    of_alpha, of_z = weight_gradients(gate, lambda: penalty(gate))
    # Of log sigmoid: descent lowers z.
    assert_close(of_z, 0.5 * (1 - sigmoid(z)), rtol=1e-5)
    assert (np.diff(of_z) > 0).all()
    assert_equal(of_alpha, 0)


def test_expected_nonzeros():
    z = numbers((3, N))
    gate = built(np.zeros((3, N)), z, num_gates=3)
    assert_close(gate.expected_nonzeros(), sigmoid(z).sum(axis=-1), rtol=1e-5)
    assert built(routing=5).expected_nonzeros(numbers((7, 5))).shape == (7,)


@pytest.mark.parametrize("routing", [None, 5])
def test_experts_start_open(routing):
    gate = built(routing=routing, num_gates=40)
    x = [0.3 * numbers((20, 5))] if routing else []
    psi = sigmoid(numpy(gate._z(*x)))
    assert 0.45 < psi.min() < 0.55
    assert 0.85 < psi.max() < 0.91
    assert (numpy(gate.expert_weights(*x)) > 0).mean() > 0.95


def test_given_initializers_hold_for_kernels_and_bias():
    gate = built(routing=5, kernel_initializer="zeros", z_initializer="ones")
    for i, weight in enumerate(gate.trainable_weights):
        assert_equal(weight, min(i, 1))


def test_the_weight_follows_its_schedule():
    gate = built(sparsity_reg=Ramp(1.0, 4.0, end=2), z_initializer="zeros")
    found = []
    for _ in range(3):
        found.append(float(numpy(penalty(gate))) / (N * np.log(0.5)))
        gate._clear_losses()
    assert_close(found, [2, 4, 4], rtol=1e-5)


def test_numbers_stand_for_a_regularizer_and_the_penalty_is_a_mean():
    gate = GumbelSoftmaxGate(sparsity_reg=1)
    assert isinstance(gate.sparsity_reg, SparsityRegularizer)
    assert gate.reduction == "mean"


test_settings_that_cannot_be_are_refused = refusals(
    (GumbelSoftmaxGate, "`reduction` must be one of 'sum', 'm", {"reduction": "max"}),
    (GumbelSoftmaxGate, r"must be .* above 0.*temperature=0\.0", {"temperature": 0.0}),
    (lambda: built(routing=5).expected_nonzeros(), "built per-example"),
)
