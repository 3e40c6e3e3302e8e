import helpers
import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import numpy, refusals, weight_gradients
from keras import ops

from dselectk_keras import SwitchGate

CASES = [Case("switch", SwitchGate, sums_to_one=False, sum_varies=True)]
P = np.array([0.125, 0.25, 0.625], "float32")


def built(logits=None, *, num_experts=3, routing=None, **settings):
    weights = None if logits is None else [np.float32(logits)]
    return helpers.built(SwitchGate(**settings), num_experts, routing, weights)


def test_weights_by_hand_where_the_first_of_equals_wins():
    assert_close(built(np.log(P)).expert_weights(), [0, 0, 0.625], rtol=1e-6)
    gate = built([1.0, 3.0, 3.0])
    assert_close(gate.expert_weights(), [0, 1 / (2 + np.exp(-2)), 0], rtol=1e-6)
    assert_equal(built(num_experts=1).expert_weights(), [1])


def test_the_gradient_by_hand_reaches_every_logit():
    gate, experts = built(np.log(P)), np.array([[[2.0], [3.0], [4.0]]], "float32")
    (found,) = weight_gradients(gate, lambda: ops.sum(gate(experts)))
    # The chosen output times p_3 (1[i = 3] - p_i).
    assert_close(found, 4 * 0.625 * ([0, 0, 1] - P), rtol=1e-5)


@pytest.mark.parametrize("logits", [[-1.0, 0.0, -2.0], [0.0, 0.0, 0.0], [-3, -2, -1]])
def test_a_logit_of_zero_is_a_logit_as_any_other(logits):
    weights = numpy(built(logits).expert_weights())
    shifted = numpy(built(np.add(logits, 5.0)).expert_weights())
    assert_close(weights, shifted, rtol=1e-5)
    assert weights.argmax() == np.argmax(logits)


def test_a_dropped_favourite_leaves_a_softmax_over_the_others():
    gate = built(np.tile(np.log(P), (200, 1)), num_gates=200, expert_dropout=0.5)
    found = np.unique(numpy(gate.route(training=True).weights).max(axis=-1).round(5))
    # Experts left: all or 3 and another, 3 alone, 1 and 2, 2 alone, 1 alone.
    wanted = [0.625, 0.625 / 0.75, 0.625 / 0.875, 1.0, 0.25 / 0.375]
    assert_close(found, sorted(wanted), atol=1e-4)


test_a_number_of_experts_is_refused = pytest.mark.backend_independent(
    refusals((SwitchGate, r"not a number .*kernel_initializer=2\. To", 2))
)
