"""Fixed choices: weights on fixed experts, with shares that train."""

import keras
import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy, value_and_gradients
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


def test_the_shares_go_to_the_choices():
    gate = ChosenGate(initial_choices=[[2, 0], [1, 1]], num_gates=2)
    gate.build((None, 3))
    gate.set_weights([np.log([[1.0, 3.0], [1.0, 4.0]])])
    np.testing.assert_allclose(
        numpy(gate.expert_weights()), [[0.75, 0, 0.25], [0, 1, 0]], atol=1e-6
    )


def test_a_choice_without_an_expert_loses_its_share():
    gate = ChosenGate(initial_choices=[1, -1])
    gate.build((None, 2))
    np.testing.assert_array_equal(numpy(gate.expert_weights()), [0, 0.5])
    report = gate.report()["selectors"]
    np.testing.assert_array_equal(numpy(report["reachable"]), [1, 0])
    np.testing.assert_array_equal(numpy(report["binary"]), [1, 1])


def test_it_mixes_what_it_has_chosen():
    gate = ChosenGate(initial_choices=[[2, 0], [1, -1]], num_gates=2)
    mixed = gate([ops.full((1, 3), value) for value in (1.0, 5.0, 3.0)])
    np.testing.assert_allclose(numpy(mixed)[0, :, 0], [2.0, 2.5], rtol=1e-6)


def test_the_shares_train():
    gate = ChosenGate(initial_choices=[2, 0])
    gate.build((None, 3))
    upstream = np.array([1.0, 0.0, 3.0], "float32")
    _, (found,) = value_and_gradients(
        lambda: [ops.sum(gate.expert_weights() * ops.convert_to_tensor(upstream))],
        gate.trainable_variables,
    )
    # d/da of softmax(a) . (3, 1) at equal shares.
    np.testing.assert_allclose(found, [0.5, -0.5], atol=1e-6)


@pytest.mark.parametrize(
    ("choices", "num_gates", "text"),
    [
        ([0, 3], None, "numbers below 3"),
        ([[0, 1]], 2, r"must have the shape \(2, 'k'\)"),
    ],
)
def test_choices_that_do_not_fit_are_refused(choices, num_gates, text):
    with pytest.raises(ValueError, match=text):
        ChosenGate(initial_choices=choices, num_gates=num_gates).build((None, 3))


def test_choices_may_be_those_of_all_gates():
    gate = ChosenGate(initial_choices=[2, 0], num_gates=3)
    gate.build((None, 4))
    assert numpy(gate.choices).tolist() == [[2, 0]] * 3


def test_drawn_experts_never_change():
    # Results depend on them.
    gate = ChosenGate(2, num_gates=4, seed=1)
    gate.build((None, 5))
    chosen = np.sort(numpy(gate.choices), axis=-1).tolist()
    assert chosen == [[2, 4], [2, 4], [2, 4], [1, 3]]
    np.testing.assert_array_equal(np.unique(numpy(gate.expert_weights())), [0, 0.5])


@pytest.mark.parametrize("k", [1, 2, 4])
def test_each_expert_is_drawn_as_often_as_any_other(k):
    gate = ChosenGate(k, num_gates=2000, seed=0)
    gate.build((None, 5))
    weights = numpy(gate.expert_weights())
    np.testing.assert_array_equal((weights > 0).sum(axis=-1), k)
    np.testing.assert_allclose((weights > 0).mean(axis=0), k / 5, atol=0.05)


def test_two_gates_draw_other_experts_unless_the_global_seed_is_set():
    def drawn(seed=None):
        if seed is not None:
            keras.utils.set_random_seed(seed)
        gate = ChosenGate(2, num_gates=50)
        gate.build((None, 5))
        return numpy(gate.choices).tolist()

    assert drawn() != drawn()
    assert drawn(5) == drawn(5)


def test_chosen_experts_replace_others_and_make_shares_equal():
    gate = ChosenGate(initial_choices=[[0, 1], [0, 1]], num_gates=2)
    gate.build((None, 5))
    gate.trainable_weights[0].assign([[1.0, 2.0], [3.0, 4.0]])
    gate.choose(np.array([[0, 1], [4, 1]]))
    assert numpy(gate.choices).tolist() == [[0, 1], [4, 1]]
    np.testing.assert_array_equal(numpy(gate.shares), [[1, 2], [0, 0]])


def test_per_example_use_is_refused():
    with pytest.raises(ValueError, match="the same for all examples"):
        ChosenGate(initial_choices=[0]).build((None, 3), (None, 2))


def settled(selection, num_experts):
    """The weights that a selection stands for."""
    gate = ChosenGate(
        initial_choices=selection.choices, num_gates=len(selection.choices)
    )
    gate.build((None, num_experts))
    gate.set_weights([selection.logits])
    return numpy(gate.expert_weights())


@pytest.mark.parametrize("num_experts", [4, 5])
@pytest.mark.parametrize("unreachable", [1.0, "assign"])
def test_dselect_k_says_what_it_has_selected(num_experts, unreachable):
    gate = DSelectKGate(3, num_gates=6, unreachable=unreachable)
    gate.build((None, num_experts))
    z, w = gate.trainable_weights
    z.assign(np.where(numbers(z.shape, seed=1) > 0, 0.7, -0.7))
    w.assign(numbers(w.shape, seed=2))
    selection = gate.chosen_experts()
    np.testing.assert_array_equal(selection.distance, 0)
    np.testing.assert_allclose(
        settled(selection, num_experts), numpy(gate.expert_weights()), atol=1e-6
    )
    np.testing.assert_array_equal(
        selection.choices >= 0,
        numpy(gate.report()["selectors"]["reachable"]) > 0.5,
    )


def test_dselect_k_says_how_far_it_is_from_a_decision():
    gate = DSelectKGate(1)
    gate.build((None, 4))
    z, w = gate.trainable_weights
    z.assign([[[0.5, 0.25]]])
    w.assign([[0.0]])
    # The smooth step at a quarter: -2/64 + 3/8 + 1/2 = 27/32.
    np.testing.assert_allclose(gate.chosen_experts().distance, [5 / 32], atol=1e-6)
    assert gate.chosen_experts().choices.tolist() == [3]


def test_top_k_says_what_it_keeps():
    gate = TopKGate(2, num_gates=3)
    gate.build((None, 5))
    gate.set_weights([numbers((3, 5))])
    np.testing.assert_allclose(
        settled(gate.chosen_experts(), 5), numpy(gate.expert_weights()), atol=1e-6
    )


def test_softmax_selectors_say_what_they_have_selected():
    gate = SoftmaxSelectorGate(2, temperature=1e-16, num_gates=3)
    gate.build((None, 5))
    for i, weight in enumerate(gate.trainable_weights):
        weight.assign(numbers(weight.shape, seed=i))
    selection = gate.chosen_experts()
    np.testing.assert_array_equal(selection.distance, 0)
    np.testing.assert_allclose(
        settled(selection, 5), numpy(gate.expert_weights()), atol=1e-6
    )


def test_a_settled_gate_says_its_choices():
    gate = ChosenGate(initial_choices=[[2, 0]], num_gates=1)
    gate.build((None, 3))
    gate.trainable_weights[0].assign([[1.0, 2.0]])
    assert gate.chosen_experts().choices.tolist() == [[2, 0]]
    np.testing.assert_array_equal(gate.chosen_experts().logits, [[1.0, 2.0]])


def test_gates_that_do_not_decide_have_no_selection():
    gate = SoftmaxGate()
    gate.build((None, 3))
    with pytest.raises(ValueError, match="SoftmaxGate does not choose among experts"):
        gate.chosen_experts()
    gate = TopKGate(2)
    gate.build((None, 3), (None, 2))
    with pytest.raises(ValueError, match="Only a static gate that is built has chosen"):
        gate.chosen_experts()


def test_it_reloads(tmp_path):
    inputs = keras.Input((3, 2))
    gate = ChosenGate(initial_choices=[1, 0], kept=[4, 7, 9], num_before=10)
    model = keras.Model(inputs, gate(inputs))
    gate.trainable_weights[0].assign([1.0, 0.0])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    x = numbers((2, 3, 2))
    np.testing.assert_array_equal(numpy(again(x)), numpy(model(x)))
    assert again.layers[-1].get_config() == gate.get_config()


def test_a_part_of_a_routing_mixes_some_of_the_experts():
    gate = ChosenGate(initial_choices=[[2, 0], [1, 1]], num_gates=2)
    gate.build((None, 4))
    routing = gate.route()
    experts = [ops.convert_to_tensor(x) for x in numbers((4, 3, 2))]
    parts = routing.part(0, 2).mix(experts[:2]), routing.part(2).mix(experts[2:])
    found = numpy(parts[0]) + numpy(parts[1])
    np.testing.assert_allclose(found, numpy(routing.mix(experts)), 1e-5, 1e-6)
