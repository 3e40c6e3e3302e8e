"""Fixed choices: weights on fixed experts, with shares that train."""

import keras
import numpy as np
import pytest
from gate_cases import Case
from helpers import built, numbers, numpy, refusals, reloaded, spread, weight_gradients
from keras import ops

from dselectk_keras import (
    ChosenGate,
    DSelectKGate,
    SoftmaxGate,
    SoftmaxSelectorGate,
    TopKGate,
)

CASES = [
    Case(
        "chosen",
        lambda num_gates=None, **kwargs: ChosenGate(
            initial_choices=[3, 1], num_gates=num_gates, **kwargs
        ),
        looks=(None,),
    ),
    Case("chosen at random", lambda **kwargs: ChosenGate(2, **kwargs), looks=(None,)),
]


def chosen(choices, num_experts, shares=None, **settings):
    gate = ChosenGate(initial_choices=choices, **settings)
    return built(gate, num_experts, weights=None if shares is None else [shares])


def test_the_shares_go_to_the_choices_of_each_gate_or_of_all():
    shares = np.log([[1.0, 3.0], [1.0, 4.0]])
    gate = chosen([[2, 0], [1, 1]], 3, shares, num_gates=2)
    wanted = [[0.75, 0, 0.25], [0, 1, 0]]
    np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, atol=1e-6)
    assert numpy(chosen([2, 0], 4, num_gates=3).choices).tolist() == [[2, 0]] * 3


def test_a_choice_without_an_expert_loses_its_share():
    gate = chosen([1, -1], 2)
    np.testing.assert_array_equal(numpy(gate.expert_weights()), [0, 0.5])
    report = gate.report()["selectors"]
    np.testing.assert_array_equal(numpy(report["reachable"]), [1, 0])
    np.testing.assert_array_equal(numpy(report["binary"]), [1, 1])
    mixed = chosen([[2, 0], [1, -1]], 3, num_gates=2)(
        [ops.full((1, 3), value) for value in (1.0, 5.0, 3.0)]
    )
    np.testing.assert_allclose(numpy(mixed)[0, :, 0], [2.0, 2.5], rtol=1e-6)


def test_the_shares_train():
    gate = chosen([2, 0], 3)
    upstream = ops.convert_to_tensor(np.array([1.0, 0.0, 3.0], "float32"))
    (found,) = weight_gradients(gate, lambda: ops.sum(gate.expert_weights() * upstream))
    # d/da of softmax(a) . (3, 1) at equal shares.
    np.testing.assert_allclose(found, [0.5, -0.5], atol=1e-6)


def test_drawn_experts_never_change_unless_the_global_seed_does():
    # Results depend on them.
    gate = built(ChosenGate(2, num_gates=4, seed=1))
    drawn = np.sort(numpy(gate.choices), axis=-1).tolist()
    assert drawn == [[2, 4], [2, 4], [2, 4], [1, 3]]
    np.testing.assert_array_equal(np.unique(numpy(gate.expert_weights())), [0, 0.5])

    def drawn(seed=None):
        if seed is not None:
            keras.utils.set_random_seed(seed)
        return numpy(built(ChosenGate(2, num_gates=50)).choices).tolist()

    assert drawn() != drawn()
    assert drawn(5) == drawn(5)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_each_expert_is_drawn_as_often_as_any_other(k):
    weights = numpy(built(ChosenGate(k, num_gates=2000, seed=0)).expert_weights())
    np.testing.assert_array_equal((weights > 0).sum(axis=-1), k)
    np.testing.assert_allclose((weights > 0).mean(axis=0), k / 5, atol=0.05)


def test_chosen_experts_replace_others_make_shares_equal_and_are_told():
    gate = chosen([[0, 1], [0, 1]], 5, np.array([[1.0, 2.0], [3.0, 4.0]]), num_gates=2)
    gate.choose(np.array([[0, 1], [4, 1]]))
    assert numpy(gate.choices).tolist() == [[0, 1], [4, 1]]
    np.testing.assert_array_equal(numpy(gate.shares), [[1, 2], [0, 0]])
    gate = chosen([[2, 0]], 3, np.array([[1.0, 2.0]]), num_gates=1)
    assert gate.chosen_experts().choices.tolist() == [[2, 0]]
    np.testing.assert_array_equal(gate.chosen_experts().logits, [[1.0, 2.0]])


def assert_selects_what_it_weighs(gate):
    """The choices and shares of a decided gate stand for its weights."""
    selection = gate.chosen_experts()
    np.testing.assert_array_equal(selection.distance, 0)
    choices, shares = selection.choices, selection.logits
    copy = chosen(choices, gate.num_experts, shares, num_gates=len(choices))
    np.testing.assert_allclose(
        numpy(copy.expert_weights()), numpy(gate.expert_weights()), atol=1e-6
    )


@pytest.mark.parametrize("num_experts", [4, 5])
@pytest.mark.parametrize("unreachable", [1.0, "assign"])
def test_dselect_k_says_what_it_has_selected(num_experts, unreachable):
    gate = built(DSelectKGate(3, num_gates=6, unreachable=unreachable), num_experts)
    z, w = gate.trainable_weights
    z.assign(np.where(numbers(z.shape, seed=1) > 0, 0.7, -0.7))
    w.assign(numbers(w.shape, seed=2))
    assert_selects_what_it_weighs(gate)
    reachable = numpy(gate.report()["selectors"]["reachable"]) > 0.5
    np.testing.assert_array_equal(gate.chosen_experts().choices >= 0, reachable)


def test_dselect_k_says_how_far_it_is_from_a_decision():
    weights = [np.array([[[0.5, 0.25]]]), np.zeros((1, 1))]
    gate = built(DSelectKGate(1), 4, weights=weights)
    # The smooth step at a quarter: -2/64 + 3/8 + 1/2 = 27/32.
    np.testing.assert_allclose(gate.chosen_experts().distance, [5 / 32], atol=1e-6)
    assert gate.chosen_experts().choices.tolist() == [3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TopKGate(2, num_gates=3),
        lambda: SoftmaxSelectorGate(2, temperature=1e-16, num_gates=3),
    ],
    ids=["top-k", "softmax selectors"],
)
def test_other_gates_say_what_they_keep(make):
    assert_selects_what_it_weighs(spread(built(make())))


def test_it_reloads(tmp_path):
    inputs = keras.Input((3, 2))
    gate = ChosenGate(initial_choices=[1, 0], kept=[4, 7, 9], num_before=10)
    model = keras.Model(inputs, gate(inputs))
    gate.trainable_weights[0].assign([1.0, 0.0])
    again, x = reloaded(model, tmp_path), numbers((2, 3, 2))
    np.testing.assert_array_equal(numpy(again(x)), numpy(model(x)))
    assert again.layers[-1].get_config() == gate.get_config()


def test_a_part_of_a_routing_mixes_some_of_the_experts():
    routing = chosen([[2, 0], [1, 1]], 4, num_gates=2).route()
    experts = [ops.convert_to_tensor(x) for x in numbers((4, 3, 2))]
    parts = routing.part(0, 2).mix(experts[:2]), routing.part(2).mix(experts[2:])
    found = numpy(parts[0]) + numpy(parts[1])
    np.testing.assert_allclose(found, numpy(routing.mix(experts)), 1e-5, 1e-6)


test_what_cannot_be_chosen_is_refused = refusals(
    (lambda: chosen([0, 3], 3), "numbers below 3"),
    (lambda: chosen([[0, 1]], 3, num_gates=2), r"must have the shape \(2, 'k'\)"),
    (
        lambda: built(ChosenGate(initial_choices=[0]), 3, features=2),
        "the same for all examples",
    ),
    (
        lambda: built(SoftmaxGate()).chosen_experts(),
        "SoftmaxGate does not choose among experts",
    ),
    (
        lambda: built(TopKGate(2), features=2).chosen_experts(),
        "Only a static gate that is built has chosen",
    ),
)
