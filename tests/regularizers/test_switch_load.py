"""The auxiliary loss of the Switch Transformer."""

from functools import partial

import numpy as np
import pytest
from checks import assert_close
from helpers import built, numbers, numpy, softmax, value_and_gradients
from keras import ops

import dselectk_keras as dk

X = numbers((12, 3))


def test_value_by_hand_summed_over_gates_and_zero_of_nothing():
    # Three of four tokens choose expert 0, whose mean probability is 5/8.
    p = np.array([[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.25, 0.75]])
    value = dk.SwitchLoadRegularizer(2.0)((p * (p > 0.5), p))
    assert float(value) == pytest.approx(2 * 2 * (3 / 4 * 5 / 8 + 1 / 4 * 3 / 8))
    weights = np.array([[[1.0, 0.0], [0.0, 1.0]]] * 3)  # Balanced only together.
    assert float(dk.SwitchLoadRegularizer(1.0)((weights, weights))) == 4.0
    nothing = np.zeros((3, 2))
    assert float(dk.SwitchLoadRegularizer(1.0)((nothing, nothing))) == 0.0


@pytest.mark.parametrize("k", [1, 2])
def test_equal_shares_give_the_weight_for_any_number_of_choices(k):
    chosen = np.stack([np.roll([1 / k] * k + [0] * (4 - k), i) for i in range(4)])
    value = dk.SwitchLoadRegularizer(0.3)((chosen, np.full((4, 4), 0.25)))
    assert float(value) == pytest.approx(0.3)


@pytest.mark.parametrize("make", [dk.SwitchGate, partial(dk.TopKGate, 2)])
def test_a_gate_penalizes_the_probabilities_of_experts_that_are_chosen_often(make):
    gate = built(make(weights_regularizer=dk.SwitchLoadRegularizer(0.5)), 4, 3)
    gate.trainable_variables[0].assign(numbers((3, 4), seed=1))

    def compute():
        gate.route(ops.convert_to_tensor(X), training=True)
        return [gate.losses[0]]

    variables = gate.trainable_variables
    (loss,), (found,) = value_and_gradients(compute, variables, [gate.step])
    p = softmax(X @ numbers((3, 4), seed=1))
    chosen = numpy(gate.expert_weights(X)) > 0
    share = chosen.sum(axis=0) / chosen.sum()
    assert loss == pytest.approx(0.5 * 4 * (share * p.mean(axis=0)).sum(), rel=1e-5)
    # The shares of the choices have no gradient.
    by_logits = p * (share - p @ share[:, None]) / len(X)
    assert_close(found, 0.5 * 4 * X.T @ by_logits, rtol=1e-4, atol=1e-6)


def test_a_noisy_gate_counts_its_choices_and_has_probabilities_without_noise():
    gate = dk.STGumbelGate(weights_regularizer=dk.SwitchLoadRegularizer(1.0), seed=0)
    built(gate, 4, 3)
    weights = numpy(gate.route(X, training=True).weights)
    p = softmax(X @ numpy(gate.trainable_variables[0]))
    expected = 4 * ((weights > 0).mean(axis=0) * p.mean(axis=0)).sum()
    assert float(numpy(gate.losses[0])) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("make", [dk.SoftmaxGate, dk.DSelectKGate])
def test_a_gate_without_choices_or_without_logits_of_experts_is_refused(make):
    gate = built(make(weights_regularizer=dk.SwitchLoadRegularizer(0.1)), 4, 3)
    with pytest.raises(ValueError, match="sparse gate with one logit per expert"):
        gate.route(X, training=True)
