from functools import partial

import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import numbers, numpy, refusals

from dselectk_keras import RandomGate

CASES = [Case("random", partial(RandomGate, 2), learns=False)]
N = 5


def random(num_nonzeros=2, *, routing=None, **settings):
    gate = RandomGate(num_nonzeros, **settings)
    gate.build((None, N), routing)
    return gate


def check_draws(weights, k):
    """Equal weights on k experts, and each expert as often as any other."""
    assert set(np.unique(weights).round(6)) == {0.0, round(1 / k, 6)}
    assert_equal((weights > 0).sum(axis=-1), k)
    assert_close((weights > 0).mean(axis=0), k / N, atol=0.05)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_training_draws_k_experts_for_each_gate(k):
    gate = random(k, num_gates=2000, seed=0)
    first, second = (numpy(gate.route(training=True).weights) for _ in range(2))
    check_draws(first, k)
    check_draws(second, k)
    assert (first != second).any(axis=-1).mean() > 0.5


@pytest.mark.parametrize("routing", [(None, 3), (None,)])
def test_training_draws_for_each_example(routing):
    gate = random(routing=routing, seed=0)
    x = numbers((2000, *routing[1:]))
    check_draws(numpy(gate.route(x, training=True).weights), 2)


def test_pairs_of_experts_are_drawn_without_preference_and_k_may_be_all():
    chosen = numpy(random(2, num_gates=5000, seed=0).route(training=True).weights) > 0
    pairs, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(pairs) == 10
    # 500 of each, with a standard deviation of 21.
    assert abs(counts - 500).max() < 90
    assert_close(random(N).route(training=True).weights, 1 / N, rtol=1e-6)


@pytest.mark.parametrize("routing", [None, (None, 3)])
def test_inference_averages_all(routing):
    gate = random(routing=routing)
    x = [numbers((7, 3))] if routing else []
    assert_close(gate.expert_weights(*x), 1 / N, rtol=1e-6)


def test_dropped_experts_are_not_drawn():
    gate = random(1, num_gates=2000, expert_dropout=0.5, seed=0)
    check_draws(numpy(gate.route(training=True).weights), 1)
    # Of two that are drawn from what is left, there may be one only.
    gate = random(2, num_gates=2000, expert_dropout=0.5, seed=0)
    counts = (numpy(gate.route(training=True).weights) > 0).sum(axis=-1)
    assert_close((counts == 1).mean(), 5 / 32, atol=0.04)


test_numbers_of_experts_that_cannot_be_are_refused = refusals(
    (lambda: random(6), r"must not exceed the 5 experts.*nonzeros=6"),
    (RandomGate, "`num_nonzeros` must be a positive integer", 0),
    (RandomGate, r"Received: num_nonzeros=1,000,000,000", 10**9),
)
