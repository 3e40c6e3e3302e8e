from functools import partial

import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import built, numbers, numpy, refusals, softmax, spread, weight_gradients
from keras import ops

from dselectk_keras import EntropyRegularizer, Ramp
from dselectk_keras.baselines import SoftmaxSelectorGate

MAKE = partial(SoftmaxSelectorGate, 2, Ramp(1.0, 0.1, end=9), entropy_reg=0.01)
CASES = [Case("softmax selectors", MAKE, penalties=("entropy",), dense=True)]
N = 3


def selectors(beta=None, alpha=None, *, k=2, routing=None, **settings):
    gate = spread(built(SoftmaxSelectorGate(k, **settings), N, routing))
    if beta is not None:
        alpha = np.reshape(alpha, (*np.shape(alpha), 1))
        gate.set_weights([np.asarray(beta, "float32"), alpha.astype("float32")])
    return gate


BETA, ALPHA = np.log([[1.0, 2.0, 1.0], [3.0, 3.0, 2.0]]), np.log([1.0, 3.0])


def test_weights_by_hand_where_the_temperature_divides_the_selectors_alone():
    gate = selectors(BETA, ALPHA)
    wanted = 0.25 * np.array([0.25, 0.5, 0.25]) + 0.75 * np.array([0.375, 0.375, 0.25])
    assert_close(gate.expert_weights(), wanted, rtol=1e-5)
    gate = selectors(BETA, ALPHA, temperature=0.5)
    first = np.array([1, 4, 1]) / 6
    second = np.array([9, 9, 4]) / 22
    assert_close(gate.expert_weights(), 0.25 * first + 0.75 * second, rtol=1e-5)


def test_normalized_logits_by_hand():
    gate = built(SoftmaxSelectorGate(1, normalize=True), N, 2)
    named = {weight.name: weight for weight in gate.trainable_weights}
    assert "w_kernel_scale" in named
    # Columns normalize to (-1, 1), (1, -1) and (-1, 1), and so does the input.
    named["z_kernel"].assign([[1, 4, 0], [3, 2, 9]])
    named["z_kernel_scale"].assign([0.1, 0.1])
    named["z_bias"].assign([0, 0, 0])
    found = gate.expert_weights(np.array([[5.0, 9.0]], "float32"))
    assert_close(found, [softmax(np.array([0.2, -0.2, 0.2]))], atol=1e-5)


def test_a_per_example_gate_by_hand():
    gate = selectors(routing=4, num_gates=2)
    z, z_bias, w, w_bias = map(numpy, gate.trainable_weights)
    x = numbers((5, 4))
    beta = (x @ z + z_bias).reshape(5, 2, 2, N)
    alpha = (x @ w + w_bias).reshape(5, 2, 2, 1)
    chosen = softmax(beta)
    wanted = (softmax(alpha, axis=-2) * chosen).sum(axis=-2)
    assert_close(gate.expert_weights(x), wanted, atol=1e-6)
    assert_close(gate.selector_outputs(x), chosen, atol=1e-6)


@pytest.mark.parametrize("beta", [[[1.0, 2, 3], [2, 1, 0]], [[1, 1, 0], [0, 0, 0]]])
def test_the_coldest_gate_is_finite_in_value_and_gradient(beta):
    gate = selectors(beta, ALPHA, temperature=1e-16)
    upstream = ops.convert_to_tensor(numbers((N,)))
    of_beta, of_alpha = weight_gradients(
        gate, lambda: ops.sum(gate.route(training=True).weights * upstream)
    )
    assert np.isfinite(of_beta).all()
    assert np.isfinite(of_alpha).all()
    largest = np.equal(beta, np.max(beta, axis=-1, keepdims=True))
    shares = largest / largest.sum(axis=-1, keepdims=True)
    assert_close(gate.selector_outputs(), shares, rtol=1e-6)
    # Experts that no tie leaves open have no gradient at all.
    tied = largest & (largest.sum(axis=-1, keepdims=True) > 1)
    assert_equal(of_beta != 0, tied)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("routing", [None, 4])
def test_the_entropy_is_that_of_the_selectors(reduction, routing):
    gate = selectors(routing=routing, entropy_reg=0.5, reduction=reduction)
    x = [numbers((5, 4))] if routing else []
    gate.route(*x, training=True)
    p = numpy(gate.selector_outputs(*x))
    wanted = -0.5 * (p * np.log(p + 1e-6)).sum()
    if routing and reduction == "mean":
        wanted /= 5
    assert_close(gate.losses, [wanted], rtol=1e-4)
    assert wanted > 0
    assert SoftmaxSelectorGate(2).reduction == "sum"  # As that of DSelect-k.


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
def test_half_precision_does_not_reach_the_temperature(policy):
    gate = selectors(BETA, ALPHA, temperature=1e-16, entropy_reg=1.0, dtype=policy)
    assert numpy(gate.report()["selectors"]["binary"]).tolist() == [1, 0]
    gate(ops.ones((2, N, 1), policy), training=True)
    assert_close(gate.losses[0], np.log(2), rtol=1e-4)


BITS = EntropyRegularizer(0.1, target="bits")
test_settings_that_cannot_be_are_refused = refusals(
    (SoftmaxSelectorGate, "`num_nonzeros` must be a positive integer", 0),
    (SoftmaxSelectorGate, "`temperature` must be .* above 0.*=-1.0", (2, -1.0)),
    (
        lambda: SoftmaxSelectorGate(2, reduction="max"),
        "`reduction` must be one of 'sum', 'mean'",
    ),
    (
        lambda: SoftmaxSelectorGate(2, entropy_reg=BITS),
        "have no bits.*target='bits'",
    ),
)
