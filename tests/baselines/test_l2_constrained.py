"""Networks of several tasks that a penalty draws together."""

import itertools

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import built, dtype_policy, numbers, numpy, refusals, weight_gradients
from keras import layers, ops

from dselectk_keras import DenseExperts, Experts, Ramp
from dselectk_keras.baselines import L2Constrained

X = numbers((4, 3))
BANKS = {
    "dense": lambda: DenseExperts(3, [4, 2], "tanh"),
    "copies": lambda: Experts(layers.Dense(2, "tanh"), 3),
    "own": lambda: DenseExperts(3, [2], shared_input=False),
    "one": lambda: DenseExperts(1, [2]),
}


def distance(bank):
    """The sum over all pairs of networks, from the parameters."""
    stacked = [numpy(part) for part in bank.parameters()]
    return sum(
        np.square(part[t] - part[u]).sum()
        for t, u in itertools.combinations(range(bank.num_experts), 2)
        for part in stacked
    )


@pytest.mark.parametrize("bank", BANKS)
def test_gives_what_the_bank_gives_and_adds_a_penalty_in_training(bank):
    x = numbers((4, 3, 5)) if bank == "own" else X
    layer = L2Constrained(BANKS[bank](), 0.5)
    assert_equal(layer(x), layer.experts(x))
    assert not layer.losses
    layer(x, training=True)
    (penalty,) = layer.losses
    assert_close(float(numpy(penalty)), 0.5 * distance(layer.experts), rtol=1e-5)


def test_batch_statistics_are_no_parameters():
    expert = keras.Sequential([layers.Dense(2), layers.BatchNormalization()])
    layer = L2Constrained(Experts(expert, 2), 0.5)
    layer(X)
    first, second = layer.experts.experts
    first.layers[1].moving_mean.assign([100.0, 100.0])
    layer(X, training=True)
    pairs = zip(first.trainable_weights, second.trainable_weights, strict=True)
    wanted = sum(np.square(numpy(a) - numpy(b)).sum() for a, b in pairs)
    assert_close(float(numpy(layer.losses[0])), 0.5 * wanted, rtol=1e-5)


@pytest.mark.parametrize("bank", ["dense", "copies"])
def test_a_step_against_the_penalty_brings_the_networks_together(bank):
    layer = L2Constrained(BANKS[bank](), 0.1)
    layer(X)

    def penalty():
        layer(X, training=True)
        return sum(layer.losses)

    before = distance(layer.experts)
    gradients = weight_gradients(layer, penalty)
    for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
        variable.assign(numpy(variable) - gradient)
    # The gradient of 0.1 T sum |theta - mean|^2 is 0.6 (theta - mean).
    assert_close(distance(layer.experts), 0.4**2 * before, rtol=1e-4)


def test_a_schedule_sees_the_number_of_training_calls():
    layer = L2Constrained(DenseExperts(2, [3]), Ramp(1.0, 3.0, end=2, kind="linear"))
    penalties = []
    for _ in range(2):
        layer(X, training=True)
        penalties.append(float(numpy(layer.losses[0])))
        layer(X)
    assert_close(penalties, np.multiply([2.0, 3.0], distance(layer.experts)), rtol=1e-5)
    assert int(layer.step) == 2
    assert len(layer.trainable_weights) == 2


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_the_penalty_is_in_float32_under_any_policy(policy):
    with dtype_policy(policy):
        bank = built(DenseExperts(2, [3]), 3)
        if policy.startswith("mixed"):
            # Closer than half precision can tell.
            start = numbers((1, 3, 3), seed=2)
            bank.weights[0].assign(np.concatenate([start, start + 1e-5]))
        layer = L2Constrained(bank, 1.0)
        outputs = layer(X, training=True)
    assert dtype_of(outputs) == bank.compute_dtype
    (penalty,) = layer.losses
    assert dtype_of(penalty) == "float32"
    kernels = numpy(ops.cast(bank.weights[0], "float32"))
    expected = np.square(kernels[0] - kernels[1]).sum()
    assert_close(penalty, expected, rtol=1e-2)
    assert expected > 0


UNLIKE = Experts([layers.Dense(2), layers.Dense(2, use_bias=False)])
test_what_cannot_be_constrained_is_refused = refusals(
    (L2Constrained, "`experts` must be a bank", (layers.Dense(3), 0.1)),
    (L2Constrained, "`strength` must be a finite number", (DenseExperts(2, [3]), None)),
    (L2Constrained(UNLIKE, 0.1), "Only copies of one layer", X),
)
