"""Gates that start with given weights."""

import numpy as np
import pytest
from gate_cases import all_cases, case_named
from helpers import built, numbers, numpy, refusals, spread, weight_gradients
from keras import ops

from dselectk_keras import (
    DSelectKGate,
    Ramp,
    ReinforceGate,
    SoftmaxGate,
    SoftmaxSelectorGate,
    STGumbelGate,
    SwitchGate,
    TopKGate,
)
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.selector_gate import SelectorGate
from dselectk_keras.ops import keep_largest

N, BATCH, DIM = 5, 4, 3
DENSE = np.array([[0.4, 0.05, 0.1, 0.3, 0.15], [0.1, 0.15, 0.05, 0.1, 0.6]])
SPARSE = np.array([[0.25, 0, 0, 0.75, 0], [0, 0, 1, 0, 0]])

ANY_WEIGHTS = {
    "softmax": lambda **kwargs: SoftmaxGate(use_bias=True, **kwargs),
    "normalized": lambda **kwargs: SoftmaxGate(use_bias=True, normalize=True, **kwargs),
    "dense steps": lambda **kwargs: TopKGate(2, dense_steps=1, use_bias=True, **kwargs),
    "top-5": lambda **kwargs: TopKGate(N, use_bias=True, **kwargs),
    "sigmoid": lambda **kwargs: TopKGate(N, scores="sigmoid", use_bias=True, **kwargs),
}
SPARSE_WEIGHTS = {
    "top-k": lambda **kwargs: TopKGate(2, use_bias=True, **kwargs),
    "DSelect-k": lambda **kwargs: DSelectKGate(2, **kwargs),
    "normalized DSelect-k": lambda **kwargs: DSelectKGate(2, normalize=True, **kwargs),
    "normalized selectors": lambda **kwargs: SoftmaxSelectorGate(
        3, normalize=True, **kwargs
    ),
    "spare selectors": lambda **kwargs: DSelectKGate(4, **kwargs),
    "softmax selectors": lambda **kwargs: SoftmaxSelectorGate(3, **kwargs),
    "temperature": lambda **kwargs: SoftmaxSelectorGate(2, temperature=0.1, **kwargs),
    "annealed": lambda **kwargs: SoftmaxSelectorGate(
        2, temperature=Ramp(1.0, 1e-16, end=1), **kwargs
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
            np.testing.assert_allclose(found, wanted, atol=1e-6)
            np.testing.assert_array_equal(found > 0, wanted > 0)


@pytest.mark.parametrize("make", SPARSE_WEIGHTS.values(), ids=SPARSE_WEIGHTS)
def test_a_sparse_gate_starts_from_a_dense_one(make):
    dense, sparse = started(ANY_WEIGHTS["softmax"]), started(make)
    kept = keep_largest(dense.expert_weights(), 2)
    sparse.assign_expert_weights(kept)
    np.testing.assert_allclose(numpy(sparse.expert_weights()), numpy(kept), atol=1e-6)


def test_top_k_keeps_the_largest_of_dense_weights_itself():
    gate = started(SPARSE_WEIGHTS["top-k"], num_gates=2)
    gate.assign_expert_weights(DENSE)
    wanted = [[4 / 7, 0, 0, 3 / 7, 0], [0, 0.2, 0, 0, 0.8]]
    np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, atol=1e-6)


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_the_balancing_bias_begins_anew(scores):
    gate = started(TopKGate, True, scores=scores, bias_rate=0.1, use_bias=True)
    (bias,) = (each for each in gate.weights if each.name == "choice_bias")
    bias.assign([-9.0, 9.0, 9.0, -9.0, 0.0])
    gate.assign_expert_weights(SPARSE[0])
    found = numpy(gate.expert_weights(numbers((BATCH, DIM))))
    np.testing.assert_allclose(found, [SPARSE[0]] * BATCH, atol=1e-6)


def test_other_gates_with_logits_have_the_probabilities():
    for gate, wanted in [
        (SwitchGate(), [0.4, 0, 0, 0, 0]),
        (STGumbelGate(), [1, 0, 0, 0, 0]),
        (ReinforceGate(), [1, 0, 0, 0, 0]),
    ]:
        gate.build((None, N))
        gate.assign_expert_weights(DENSE[0])
        np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.25, Ramp(1.0, 0.25, end=1)])
def test_slack_spreads_a_share_of_each_softmax(temperature):
    wanted = 0.9 * SPARSE[0] + 0.02
    for name in ("softmax", "sigmoid"):
        gate = started(ANY_WEIGHTS[name])
        gate.assign_expert_weights(SPARSE[0], slack=0.1)
        np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, rtol=1e-5)
    gate = started(lambda: SoftmaxSelectorGate(3, temperature))
    gate.assign_expert_weights(SPARSE[0], slack=0.1)
    selectors = 0.9 * np.eye(N)[[3, 0, 0]] + 0.02
    np.testing.assert_allclose(numpy(gate.selector_outputs()), selectors, rtol=1e-5)
    np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", LEARNING)
def test_slack_gives_every_logit_a_gradient(name):
    gate = started(GATES[name])
    experts = numbers((BATCH, N, 2))
    for slack, learns in [(0.0, False), (0.1, True)]:
        gate.assign_expert_weights(SPARSE[0], slack)
        found, *_ = weight_gradients(gate, lambda: ops.sum(gate(experts) ** 2))
        assert (found != 0).all() == learns


# Errors.


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_gates_without_logits_or_selectors_say_that_they_cannot(case):
    gate = case.make()
    if isinstance(gate, (LogitGate, SelectorGate)):
        pytest.skip("This gate can.")
    gate.num_experts, gate.built = N, True
    with pytest.raises(ValueError, match=r"cannot be set to given weights\. Use a"):
        gate.assign_expert_weights(DENSE[0])


def softmax(weights, slack=0.0, **settings):
    return lambda: started(SoftmaxGate, **settings).assign_expert_weights(
        weights, slack
    )


NO_SIMPLEX = [0.5, 0.6, 0, 0, 0], [1.5, -0.5, 0, 0, 0], [np.nan, 1, 0, 0, 0], [0] * 5
test_weights_that_cannot_be_are_refused = refusals(
    (
        lambda: case_named("top-k").make().assign_expert_weights(DENSE[0]),
        "has no weights yet",
    ),
    (softmax(DENSE[0], per_example=True), "without a bias cannot be assigned"),
    *(
        (lambda make=make, each=each: started(make).assign_expert_weights(each), text)
        for make in (SoftmaxGate, lambda: SoftmaxSelectorGate(2))
        for each in NO_SIMPLEX
        for text in ["must be non-negative, sum to one"]
    ),
    *(
        (
            lambda make=make: started(make).assign_expert_weights(DENSE[0]),
            rf"pass ops.keep_largest\(weights, {k}\)",
        )
        for make, k in [
            (lambda: DSelectKGate(2), 2),
            (lambda: SoftmaxSelectorGate(3), 3),
        ]
    ),
    *(
        (softmax(weights), r"must have the shape \(5,\)\. Received")
        for weights in (DENSE, DENSE[0, :4], 1.0)
    ),
    *(
        (softmax(DENSE[0], slack), r"`slack` must be .* at most 1")
        for slack in (-0.1, 1.1, float("nan"))
    ),
)
