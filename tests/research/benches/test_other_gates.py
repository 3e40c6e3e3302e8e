"""Gates of other papers: what they compute, and that they keep to the contract."""

import keras
import numpy as np
import pytest
from gate_cases import Case
from gates import test_contract as contract
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import build_multitask_model
from research.benches.other_gates import (
    BalancedGate,
    ReLUGate,
    TreeGate,
)

CASES = [
    Case(
        "ReLU",
        lambda **kwargs: ReLUGate(2, **kwargs),
        penalties=("l1",),
        sums_to_one=False,
        sparse_gradient=True,
    ),
    Case(
        "tree",
        lambda **kwargs: TreeGate(2, entropy_reg=0.1, **kwargs),
        penalties=("entropy",),
    ),
    Case("balanced", lambda **kwargs: BalancedGate(2, **kwargs), sparse_gradient=True),
]
CHECKS = [
    contract.test_experts_of_any_rank_come_as_a_list_or_as_one_tensor,
    contract.test_penalties_come_in_order_and_in_training_only,
    contract.test_a_record_has_what_each_call_computes,
]


@pytest.mark.parametrize("num_gates", [None, 3], ids=["one", "three"])
@pytest.mark.parametrize("look", [None, "x"], ids=["static", "x"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_gates_keep_to_the_contract_of_gates(case, look, num_gates):
    contract.test_weights_lie_on_the_simplex_in_float32(case, look, num_gates, 5)
    contract.test_no_gradient_comes_from_noise_or_dropped_experts_at_inference(
        case, look, num_gates
    )
    for check in CHECKS:
        check(case, look)
    # A negative input of ReLU has no gradient (see above), and all weights of a gate
    # can be zero.
    if case.name != "ReLU":
        contract.test_training_reaches_every_weight(case, look, num_gates)
        contract.test_training_drops_experts(case, look)
    contract.test_the_step_is_the_last_weight_and_may_be_left_out(case, look)
    contract.test_with_num_gates_copies(case)
    if look:
        contract.test_an_input_of_each_gate_is_seen_by_that_gate_alone(case, look)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_model_with_another_gate_is_saved(case, tmp_path):
    model = build_multitask_model(
        3, ["a", "b"], experts=4, gate=case.make(), stacked=True
    )
    x = numbers((5, 3))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(again(x)), numpy(model(x)))


def built(gate, num_experts=4):
    gate.build((None, num_experts, 2))
    return gate


def trained(gate):
    """The losses of a training call."""
    gate(numbers((3, gate.num_experts, 2)), training=True)
    return [float(numpy(loss)) for loss in gate.losses]


def test_a_relu_gate_is_its_rectified_logits():
    gate = built(ReLUGate(2))
    gate._logits.assign([2.0, -1.0, 0.0, 6.0])
    np.testing.assert_allclose(numpy(gate.expert_weights()), [0.5, 0.0, 0.0, 1.5])


def test_the_l1_penalty_grows_until_k_experts_are_left():
    gate = built(ReLUGate(2, l1=0.1, growth=2.0))
    gate._logits.assign([2.0, 1.0, 1.0, -1.0])
    for coefficient in (0.2, 0.4):
        np.testing.assert_allclose(trained(gate), [coefficient * 1.0], rtol=1e-6)
    # With k experts it stays, with fewer it falls, and nothing is penalized.
    for logits, coefficient in ([2, 1, -1, -1], 0.4), ([2, -1, -1, -1], 0.2):
        gate._logits.assign(logits)
        assert trained(gate) == [0.0]
        np.testing.assert_allclose(numpy(gate.coefficient), coefficient, rtol=1e-6)


def test_each_gate_has_a_coefficient_of_its_own():
    gate = built(ReLUGate(2, l1=0.1, growth=2.0, num_gates=2))
    gate._logits.assign([[1.0, 1.0, 1.0, 1.0], [4.0, -1.0, -1.0, -1.0]])
    np.testing.assert_allclose(trained(gate), [0.2 * 1.0], rtol=1e-6)
    np.testing.assert_allclose(numpy(gate.coefficient), [0.2, 0.05], rtol=1e-6)


def test_a_balanced_penalty_weighs_experts_by_their_load():
    gate = built(ReLUGate(1, l1=0.1, growth=2.0, balanced=True, num_gates=2), 2)
    gate._logits.assign([[2.0, 4.0], [-1.0, 6.0]])
    # Loads are 1/2 and 1, times n / k = 2; the second gate has k experts.
    np.testing.assert_allclose(trained(gate), [0.2 * (1.0 + 2.0 * 2.0)], rtol=1e-6)


def test_a_per_example_relu_gate_counts_the_experts_of_the_mean_example():
    gate = ReLUGate(1, l1=0.1, growth=2.0)
    gate.build((None, 2, 2), (None, 2))
    gate._logits.kernel.assign(np.eye(2))
    # Two experts, then one: 1.5 in the mean.
    x = np.array([[2.0, 4.0], [-1.0, 2.0]], "float32")
    gate(numbers((2, 2, 2)), x, training=True)
    (found,) = gate.losses
    np.testing.assert_allclose(numpy(found), 0.2 * (3.0 + 1.0) / 2, rtol=1e-6)


def test_a_tree_multiplies_the_turns_of_each_path():
    # Three experts: the first is at the right of the root, the others below its left.
    gate = built(TreeGate(2), 3)
    # A smooth step of 0.25 is 0.84375.
    gate._nodes.assign([[0.25, 0.0], [-0.5, 0.0]])
    gate._leaves.assign(np.log([[1.0, 1.0, 1.0], [1.0, 1.0, 3.0]]))
    first = np.array([0.15625, 0.421875, 0.421875])
    wanted = np.add(first, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(numpy(gate.expert_weights()), wanted / 2, rtol=1e-5)
    np.testing.assert_allclose(numpy(gate.route().selectors)[0], first)


def test_a_tree_with_large_leaves_out_of_reach_has_finite_weights():
    gate = built(TreeGate(1))
    gate._nodes.assign([[0.5, 0.5, 0.0]])
    gate._leaves.assign([[-300.0, 300.0, 300.0, 300.0]])

    def weighted():
        return [ops.sum(gate.expert_weights() * ops.arange(4.0))]

    np.testing.assert_allclose(numpy(gate.expert_weights()), [1, 0, 0, 0], atol=1e-6)
    _, gradients = value_and_gradients(weighted, gate.trainable_variables)
    assert all(np.isfinite(each).all() for each in gradients)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_tree_gate_takes_given_weights(n):
    gate = built(TreeGate(2, num_gates=n), n)
    wanted = 0.75 * np.eye(n) + 0.25 * np.roll(np.eye(n), 1, axis=1)
    gate.assign_expert_weights(wanted)
    np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, atol=1e-6)


def test_a_relu_gate_takes_given_weights():
    gate = built(ReLUGate(2))
    gate.assign_expert_weights([0.0, 1.5, 0.25, 0.0])
    np.testing.assert_allclose(numpy(gate.expert_weights()), [0.0, 1.5, 0.25, 0.0])
    assert (numpy(gate._logits.static)[[0, 3]] < -0.5).all()


def test_the_bias_favours_experts_that_few_gates_choose():
    gate = built(BalancedGate(1, bias_rate=0.25, num_gates=2), 3)
    gate._logits.assign(np.log([[3.0, 1.0, 1.0], [3.0, 1.0, 1 / 3]]))  # 3/4, 1/2, 1/4
    trained(gate)
    np.testing.assert_allclose(numpy(gate._bias), [-0.25, 0.25, 0.25])
    np.testing.assert_array_equal(numpy(gate.expert_weights()), [[0, 1, 0], [0, 1, 0]])
    trained(gate)
    np.testing.assert_allclose(numpy(gate._bias), [0.0, 0.0, 0.5])


def test_a_bias_changes_the_choice_and_not_the_weights():
    gate = built(BalancedGate(2), 3)
    gate._logits.assign(np.log([3.0, 1.0, 1 / 3]))
    gate._bias.assign([0.0, 0.0, 1.0])
    np.testing.assert_allclose(numpy(gate.expert_weights()), [0.75, 0, 0.25], rtol=1e-6)
