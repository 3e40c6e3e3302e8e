"""Alike examples to the same expert, others to others: Equations 8 to 10."""

import itertools

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import gradient, numbers, numpy, shares, value_and_gradients
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras.gates import RouterInputs
from dselectk_keras.gates.record import recording
from dselectk_keras.regularizers.sample_similarity import squared_distances

N, M, DIM = 6, 3, 4
X = numbers((N, DIM))


def by_hand(p, x, beta_s, beta_d):
    """The double sum over examples and over experts, term by term."""
    batch, experts = p.shape
    total = 0.0
    for a, b in itertools.permutations(range(batch), 2):
        distance = float(((x[a].astype("float64") - x[b]) ** 2).sum())
        products = np.outer(p[a], p[b])
        same = np.trace(products) / experts
        different = (products.sum() - np.trace(products)) / max(1, experts**2 - experts)
        total += (beta_s * same - beta_d * different) * distance
    return total / (batch**2 - batch)


def of_gates(weights, x):
    """The sum over gates of what is equal for all of them."""
    weights = np.reshape(weights, (N, -1, M))
    return sum(by_hand(w, x, 0.7, 0.3) for w in np.moveaxis(weights, 1, 0))


BOTH = dk.SampleSimilarityRegularizer(0.7, 0.3)


@pytest.mark.parametrize("experts", [M, 1])
@pytest.mark.parametrize("betas", [(1.0, 0.0), (0.0, 1.0), (0.7, 0.3)])
def test_equals_the_sums_term_by_term(betas, experts):
    p = shares(N, experts)
    found = dk.SampleSimilarityRegularizer(*betas, weight=2.0)((p, X))
    assert_close(float(found), 2 * by_hand(p, X, *betas), rtol=1e-5)


def test_the_mean_is_over_the_examples_that_count_and_computed_in_full():
    p, x = shares(N, M), X.copy()
    p[4:] = 0.0  # As where a mask left examples out.
    found = BOTH((p, x, np.float32(4)))
    assert_close(float(found), by_hand(p[:4], x[:4], 0.7, 0.3), rtol=1e-5)
    p, x = shares(N, M), 300 * X
    half = [ops.cast(value, "float16") for value in (p, x)]
    found = BOTH(half)
    assert dtype_of(found) == "float32"
    expected = by_hand(*(numpy(value).astype("float32") for value in half), 0.7, 0.3)
    assert_close(float(found), expected, rtol=1e-4)


@pytest.mark.parametrize("own", [False, True])
def test_several_gates_are_summed_by_their_own_inputs_if_they_have_any(own):
    p = shares(N, 2, M)
    x = numbers((N, 2, DIM), seed=5) if own else X
    found = BOTH((p, x))
    each = [x[:, g] if own else x for g in range(2)]
    expected = sum(by_hand(p[:, g], each[g], 0.7, 0.3) for g in range(2))
    assert_close(float(found), expected, rtol=1e-5)


def test_gradient_of_the_weights_equals_finite_differences():
    p, regularizer = shares(N, M), BOTH
    found = gradient(lambda v: regularizer((v, X)), p)
    expected = np.empty_like(p)
    for place in np.ndindex(N, M):
        step = np.zeros_like(p, "float64")
        step[place] = 1e-4
        ends = [by_hand(p + s * step, X, 0.7, 0.3) for s in (1, -1)]
        expected[place] = (ends[0] - ends[1]) / 2e-4
    assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_the_inputs_are_constants():
    p, regularizer = shares(N, M), BOTH
    by_p, by_x = gradient(lambda v, x: regularizer((v, x)), p, X)
    assert by_p.any()
    assert not by_x.any()


@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 3), (4,), (1, 3)])
@pytest.mark.parametrize("offset", [0, 1000])
def test_distances_follow_the_formula(shape, offset):
    x = numbers(shape) + np.float32(offset)
    exact = x.reshape(shape[0], -1).astype("float64")
    expected = ((exact[:, None] - exact[None]) ** 2).sum(axis=-1)
    assert_close(squared_distances(x), expected, rtol=1e-3, atol=1e-5)


def test_distances_are_zero_on_the_diagonal_and_nowhere_below():
    # Each row twice, but for a little: there rounding goes below zero.
    x = numbers((20, 7), scale=30.0)
    found = numpy(squared_distances(np.concatenate([x, x + numbers(x.shape) / 1e4])))
    assert_equal(np.diag(found), 0)
    assert_equal(found, found.T)
    assert (found >= 0).all()
    assert_close(np.diag(found, 20), 0, atol=1e-2)


def test_a_batch_without_pairs_has_no_penalty():
    p, regularizer = shares(1, M), dk.SampleSimilarityRegularizer(1.0, 1.0)
    assert float(regularizer((p, X[:1]))) == 0.0
    assert_equal(gradient(lambda v: regularizer((v, X[:1])), p), 0.0)
    gate = dk.SoftmaxGate(weights_regularizer=dk.SampleSimilarityRegularizer(1.0, 1.0))
    gate(ops.zeros((0, M, 2)), ops.zeros((0, DIM)), training=True)
    assert numpy(gate.losses[0]) == 0.0


@pytest.mark.parametrize("num_gates", [None, 2])
def test_reaches_the_gate_in_training_only(num_gates):
    gate = dk.SoftmaxGate(num_gates=num_gates, weights_regularizer=BOTH)
    experts = numbers((N, M, 2))
    gate((experts, X))
    assert gate.losses == []

    def compute():
        gate((experts, X), training=True)
        return [gate.losses[0], gate.expert_weights(X)]

    variables = gate.trainable_variables
    (value, weights), (by_kernel,) = value_and_gradients(compute, variables)
    assert_close(value, of_gates(weights, X), rtol=1e-4)
    assert by_kernel.any(axis=0).all()


@pytest.mark.parametrize("gate", [dk.SoftmaxGate, dk.AttentiveGate])
@pytest.mark.parametrize("num_gates", [None, 2])
def test_behind_a_network_the_network_s_inputs_are_compared(gate, num_gates):
    # As many rows in an image as gates: the axis is not taken for that of the gates.
    images = numbers((N, 2, 5), seed=3)
    network = keras.Sequential([layers.Flatten(), layers.Dense(4, "tanh")])
    made = gate(num_gates=num_gates, weights_regularizer=BOTH)
    make = dk.AttentiveMoE if gate is dk.AttentiveGate else dk.MoE
    moe = make(dk.DenseExperts(M, [4, 2]), made, True, routing_network=network)
    calls = []
    moe((X, images))
    with recording(calls.append):
        moe((X, images), training=True)
    expected = of_gates(numpy(moe.expert_weights((X, images))), images.reshape(N, -1))
    assert_close(moe.losses[0], expected, rtol=1e-4)
    penalties = moe.gate.report(calls[0].routing)["penalties"]
    assert_close(penalties["weights"], expected, rtol=1e-4)


def test_each_task_compares_its_own_inputs():
    gate = dk.SoftmaxGate(weights_regularizer=BOTH)
    bank = dk.DenseExperts(M, [2], shared_input=False)
    layer = dk.CGC(bank, gate, tasks=2, per_example="by_gate")
    x = numbers((N, 3, DIM), seed=3)
    layer(x, training=True)
    weights = numpy(layer.expert_weights(x))
    expected = sum(by_hand(weights[:, g], x[:, g], 0.7, 0.3) for g in range(2))
    assert_close(layer.losses[0], expected, rtol=1e-4)


def test_examples_of_a_report_are_those_of_a_call():
    gate = dk.SoftmaxGate(weights_regularizer=BOTH)
    images = numbers((N, 2, 5), seed=3)
    gate(numbers((N, M, 2)), X, training=True, examples=images)
    expected = by_hand(numpy(gate.expert_weights(X)), images.reshape(N, -1), 0.7, 0.3)
    assert_close(gate.losses[0], expected, rtol=1e-4)
    reported = gate.report(RouterInputs(X, images))["penalties"]["weights"]
    assert_close(reported, expected, rtol=1e-4)


def test_static_gates_are_refused():
    gate = dk.SoftmaxGate(weights_regularizer=BOTH)
    with pytest.raises(ValueError, match=r"compares the weights of examples.*Pass"):
        gate(numbers((N, M, 2)), training=True)
