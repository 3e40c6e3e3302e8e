"""Gates that start with given weights."""

from functools import partial

import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import all_cases
from helpers import built, numbers, numpy, refusals, spread, weight_gradients
from keras import ops

import dselectk_keras as dk
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.selector_gate import SelectorGate

pytestmark = pytest.mark.backend_independent

N, BATCH, DIM = 5, 4, 3
DENSE = np.array([[0.4, 0.05, 0.1, 0.3, 0.15], [0.1, 0.15, 0.05, 0.1, 0.6]])
SPARSE = np.array([[0.25, 0, 0, 0.75, 0], [0, 0, 1, 0, 0]])
ANY_WEIGHTS = {
    "softmax": partial(dk.SoftmaxGate, use_bias=True),
    "normalized": partial(dk.SoftmaxGate, use_bias=True, normalize=True),
    "dense steps": partial(dk.TopKGate, 2, dense_steps=1, use_bias=True),
    "top-5": partial(dk.TopKGate, N, use_bias=True),
    "sigmoid": partial(dk.TopKGate, N, scores="sigmoid", use_bias=True),
}
SPARSE_WEIGHTS = {
    "top-k": partial(dk.TopKGate, 2, use_bias=True),
    "DSelect-k": partial(dk.DSelectKGate, 2),
    "normalized DSelect-k": partial(dk.DSelectKGate, 2, normalize=True),
    "normalized selectors": partial(
        dk.baselines.SoftmaxSelectorGate, 3, normalize=True
    ),
    "spare selectors": partial(dk.DSelectKGate, 4),
    "softmax selectors": partial(dk.baselines.SoftmaxSelectorGate, 3),
    "temperature": partial(dk.baselines.SoftmaxSelectorGate, 2, temperature=0.1),
    "annealed": partial(
        dk.baselines.SoftmaxSelectorGate, 2, temperature=dk.Ramp(1.0, 1e-16, end=1)
    ),
}
GATES = ANY_WEIGHTS | SPARSE_WEIGHTS
LEARNING = ["softmax", "dense steps", "sigmoid", "DSelect-k", "softmax selectors"]


def started(make, per_example=False, **settings):
    gate = spread(built(make(**settings), N, DIM if per_example else None))
    gate.step.assign(1)
    return gate


@pytest.mark.parametrize("per_example", [False, True])
@pytest.mark.parametrize("name", GATES)
def test_a_gate_has_the_weights_that_it_is_given(name, per_example):
    looks = [numbers((BATCH, DIM), scale=10)] if per_example else []
    for weights in [SPARSE] if name in SPARSE_WEIGHTS else [SPARSE, DENSE]:
        for given, num_gates in [(weights, 2), (weights[0], None)]:
            gate = started(GATES[name], per_example, num_gates=num_gates)
            gate.assign_expert_weights(given)
            found = numpy(gate.expert_weights(*looks))
            wanted = np.broadcast_to(given, found.shape)
            assert_close(found, wanted, atol=1e-6)
            assert_equal(found > 0, wanted > 0)


def test_top_k_keeps_the_largest_of_dense_weights_itself():
    gate = started(SPARSE_WEIGHTS["top-k"], num_gates=2)
    gate.assign_expert_weights(DENSE)
    wanted = [[4 / 7, 0, 0, 3 / 7, 0], [0, 0.2, 0, 0, 0.8]]
    assert_close(gate.expert_weights(), wanted, atol=1e-6)


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_the_balancing_bias_begins_anew(scores):
    gate = started(dk.TopKGate, True, scores=scores, bias_rate=0.1, use_bias=True)
    (bias,) = (each for each in gate.weights if each.name == "choice_bias")
    bias.assign([-9.0, 9.0, 9.0, -9.0, 0.0])
    gate.assign_expert_weights(SPARSE[0])
    found = numpy(gate.expert_weights(numbers((BATCH, DIM))))
    assert_close(found, [SPARSE[0]] * BATCH, atol=1e-6)


@pytest.mark.every_backend
def test_other_gates_with_logits_have_the_probabilities():
    for gate, wanted in [
        (dk.SwitchGate(), [0.4, 0, 0, 0, 0]),
        (dk.baselines.STGumbelGate(), [1, 0, 0, 0, 0]),
        (dk.baselines.ReinforceGate(), [1, 0, 0, 0, 0]),
    ]:
        gate.build((None, N))
        gate.assign_expert_weights(DENSE[0])
        assert_close(gate.expert_weights(), wanted, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.25, dk.Ramp(1.0, 0.25, end=1)])
def test_slack_spreads_a_share_of_each_softmax(temperature):
    wanted = 0.9 * SPARSE[0] + 0.02
    for name in ("softmax", "sigmoid"):
        gate = started(ANY_WEIGHTS[name])
        gate.assign_expert_weights(SPARSE[0], slack=0.1)
        assert_close(gate.expert_weights(), wanted, rtol=1e-5)
    gate = started(lambda: dk.baselines.SoftmaxSelectorGate(3, temperature))
    gate.assign_expert_weights(SPARSE[0], slack=0.1)
    assert_close(gate.selector_outputs(), 0.9 * np.eye(N)[[3, 0, 0]] + 0.02, rtol=1e-5)
    assert_close(gate.expert_weights(), wanted, rtol=1e-5)


@pytest.mark.every_backend
@pytest.mark.parametrize("name", LEARNING)
def test_slack_gives_every_logit_a_gradient(name):
    gate = started(GATES[name])
    experts = numbers((BATCH, N, 2))
    for slack, learns in [(0.0, False), (0.1, True)]:
        gate.assign_expert_weights(SPARSE[0], slack)
        found, *_ = weight_gradients(gate, lambda: ops.sum(gate(experts) ** 2))
        assert (found != 0).all() == learns


def test_gates_without_logits_or_selectors_say_that_they_cannot():
    for case in all_cases():
        if isinstance(gate := case.make(), (LogitGate, SelectorGate)):
            continue
        gate.num_experts, gate.built = N, True
        with pytest.raises(ValueError, match="cannot be set to given weights"):
            gate.assign_expert_weights(DENSE[0])


class PlainGate(Gate):
    """A gate of one's own without optional methods."""

    def build_logits(self):
        """Nothing is trained."""

    def compute_weights(self, inputs, training, step):
        """No test calls it."""
        raise AssertionError


def test_errors_name_the_method_that_a_gate_of_ones_own_may_define():
    gate = PlainGate()
    with pytest.raises(ValueError, match="define `chosen_experts`"):
        gate.chosen_experts()
    with pytest.raises(ValueError, match="define `assign_logits`"):
        gate.assign_logits(DENSE[0], 0.0)
    layer = dk.MoE(dk.DenseExperts(N, [2]), gate, per_example=True, dispatch=True)
    with pytest.raises(ValueError, match="define `max_experts`"):
        layer.build((None, 4), (None, 4))


def assign(weights, slack=0.0, make=dk.SoftmaxGate, **settings):
    started(make, **settings).assign_expert_weights(weights, slack)


NO_SIMPLEX = [0.5, 0.6, 0, 0, 0], [1.5, -0.5, 0, 0, 0], [np.nan, 1, 0, 0, 0], [0] * 5
test_weights_that_cannot_be_are_refused = refusals(
    (dk.TopKGate(2).assign_expert_weights, "has no weights yet", DENSE[0]),
    (lambda: assign(DENSE[0], per_example=True), "without a bias cannot be assigned"),
    *(
        (partial(assign, make=make), "must be non-negative, sum to one", *NO_SIMPLEX)
        for make in (dk.SoftmaxGate, partial(dk.baselines.SoftmaxSelectorGate, 2))
    ),
    *(
        (assign, rf"pass ops.keep_largest\(weights, {k}\)", (DENSE[0], 0.0, make))
        for make, k in [
            (partial(dk.DSelectKGate, 2), 2),
            (partial(dk.baselines.SoftmaxSelectorGate, 3), 3),
        ]
    ),
    (assign, r"must have the shape \(5,\)\. Received", DENSE, DENSE[0, :4], 1.0),
    (
        lambda slack: assign(DENSE[0], slack),
        r"`slack` must be .* at most 1",
        *(-0.1, 1.1, float("nan")),
    ),
)
