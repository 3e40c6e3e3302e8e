"""Fixed choices: weights on fixed experts, with shares that train."""

import warnings
from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import built, numbers, numpy, refusals, spread
from keras import ops

import dselectk_keras as dk

# As in pyproject.toml; `pytest.warns` forgets from which module they come.
pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
]

CASES = [
    Case("chosen", partial(dk.ChosenGate, initial_choices=[3, 1]), looks=(None,)),
    Case("chosen at random", partial(dk.ChosenGate, 2), looks=(None,)),
]


def chosen(choices, num_experts, shares=None, **settings):
    gate = dk.ChosenGate(initial_choices=choices, **settings)
    return built(gate, num_experts, weights=None if shares is None else [shares])


@pytest.mark.every_backend
def test_the_shares_go_to_the_choices_of_each_gate_or_of_all():
    gate = chosen([[2, 0], [1, 1]], 3, np.log([[1.0, 3.0], [1.0, 4.0]]), num_gates=2)
    assert_close(gate.expert_weights(), [[0.75, 0, 0.25], [0, 1, 0]], atol=1e-6)
    assert numpy(chosen([2, 0], 4, num_gates=3).choices).tolist() == [[2, 0]] * 3


def test_a_choice_without_an_expert_loses_its_share():
    gate = chosen([1, -1], 2)
    assert_equal(gate.expert_weights(), [0, 0.5])
    report = gate.report()["selectors"]
    assert_equal(report["reachable"], [1, 0])
    assert_equal(report["binary"], [1, 1])
    mixed = chosen([[2, 0], [1, -1]], 3, num_gates=2)(
        [ops.full((1, 3), value) for value in (1.0, 5.0, 3.0)]
    )
    assert_close(numpy(mixed)[0, :, 0], [2.0, 2.5], rtol=1e-6)


@pytest.mark.every_backend
def test_the_shares_train():
    gate = chosen([2, 0], 3)
    upstream = ops.convert_to_tensor(np.array([1.0, 0.0, 3.0], "float32"))
    (found,) = helpers.weight_gradients(
        gate, lambda: ops.sum(gate.expert_weights() * upstream)
    )
    # d/da of softmax(a) . (3, 1) at equal shares.
    assert_close(found, [0.5, -0.5], atol=1e-6)


@pytest.mark.every_backend
def test_drawn_experts_never_change_unless_the_global_seed_does():
    # Results depend on them.
    gate = built(dk.ChosenGate(2, num_gates=4, seed=1))
    drawn = np.sort(numpy(gate.choices), axis=-1).tolist()
    assert drawn == [[2, 4], [2, 4], [2, 4], [1, 3]]
    assert_equal(np.unique(numpy(gate.expert_weights())), [0, 0.5])

    def drawn(seed=None):
        if seed is not None:
            keras.utils.set_random_seed(seed)
        return numpy(built(dk.ChosenGate(2, num_gates=50)).choices).tolist()

    assert drawn() != drawn()
    assert drawn(5) == drawn(5)


@pytest.mark.every_backend
@pytest.mark.parametrize("k", [1, 2, 4])
def test_each_expert_is_drawn_as_often_as_any_other(k):
    weights = numpy(built(dk.ChosenGate(k, num_gates=2000, seed=0)).expert_weights())
    assert_equal((weights > 0).sum(axis=-1), k)
    assert_close((weights > 0).mean(axis=0), k / 5, atol=0.05)


def test_chosen_experts_replace_others_make_shares_equal_and_are_told():
    gate = chosen([[0, 1], [0, 1]], 5, np.array([[1.0, 2.0], [3.0, 4.0]]), num_gates=2)
    gate.choose(np.array([[0, 1], [4, 1]]))
    assert numpy(gate.choices).tolist() == [[0, 1], [4, 1]]
    assert_equal(gate.shares(), [[1, 2], [0, 0]])
    gate = chosen([[2, 0]], 3, np.array([[1.0, 2.0]]), num_gates=1)
    assert gate.chosen_experts().choices.tolist() == [[2, 0]]
    assert_equal(gate.chosen_experts().logits, [[1.0, 2.0]])


def test_shares_that_are_not_trained_stay_so():
    gate = built(dk.ChosenGate(2, train_shares=False))
    for trainable in (False, True):
        gate.trainable = trainable
        assert gate.trainable_variables == []
    assert len(built(dk.ChosenGate(2)).trainable_variables) == 1


def assert_selects_what_it_weighs(gate):
    """The choices and shares of a decided gate stand for its weights."""
    selection = gate.chosen_experts()
    assert_equal(selection.distance, 0)
    choices, shares = selection.choices, selection.logits
    copy = chosen(choices, gate.num_experts, shares, num_gates=len(choices))
    assert_close(copy.expert_weights(), gate.expert_weights(), atol=1e-6)


@pytest.mark.every_backend
@pytest.mark.parametrize("num_experts", [4, 5])
@pytest.mark.parametrize("unreachable", [1.0, "assign"])
def test_dselect_k_says_what_it_has_selected(num_experts, unreachable):
    gate = built(dk.DSelectKGate(3, num_gates=6, unreachable=unreachable), num_experts)
    z, w = gate.trainable_weights
    z.assign(np.where(numbers(z.shape, seed=1) > 0, 0.7, -0.7))
    w.assign(numbers(w.shape, seed=2))
    assert_selects_what_it_weighs(gate)
    reachable = numpy(gate.report()["selectors"]["reachable"]) > 0.5
    assert_equal(gate.chosen_experts().choices >= 0, reachable)


def test_dselect_k_says_how_far_it_is_from_a_decision():
    weights = [np.array([[[0.5, 0.25]]]), np.zeros((1, 1))]
    gate = built(dk.DSelectKGate(1), 4, weights=weights)
    # The smooth step at a quarter: -2/64 + 3/8 + 1/2 = 27/32.
    assert_close(gate.chosen_experts().distance, [5 / 32], atol=1e-6)
    assert gate.chosen_experts().choices.tolist() == [3]


def test_other_gates_say_what_they_keep():
    cold = dk.baselines.SoftmaxSelectorGate(2, temperature=1e-16, num_gates=3)
    sigmoid = dk.TopKGate(3, scores="sigmoid", num_gates=3)
    for gate in (dk.TopKGate(2, num_gates=3), sigmoid, cold):
        assert_selects_what_it_weighs(spread(built(gate)))


@pytest.mark.every_backend
def test_a_part_of_a_routing_mixes_some_of_the_experts():
    routing = chosen([[2, 0], [1, 1]], 4, num_gates=2).route()
    experts = [ops.convert_to_tensor(x) for x in numbers((4, 3, 2))]
    parts = routing.part(0, 2).mix(experts[:2]), routing.part(2).mix(experts[2:])
    assert_close(numpy(parts[0]) + numpy(parts[1]), routing.mix(experts), 1e-5, 1e-6)


def fitted(gate=None, callbacks=(), change=lambda gate: None, **settings):
    """Train a model with a gate, and count the warnings of random experts."""
    gate = dk.ChosenGate(2) if gate is None else gate
    model = dk.build_multitask_model(3, ["a", "b"], gate=gate, experts=4)
    model.compile("sgd")
    change(model.get_layer("mmoe").gate)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            model.fit(X, X[:, :2], verbose=0, callbacks=[*callbacks], **settings)
    texts = [str(each.message) for each in found]
    return sum("experts that were drawn at random: chosen_gate" in t for t in texts)


X = numbers((8, 3))


def test_a_training_on_random_experts_warns_once_if_nobody_chose_them():
    assert fitted() == 1
    assert fitted(callbacks=[dk.GateRecorder(), dk.DecideGates()]) == 1
    assert fitted(callbacks=[dk.ChooseExperts()]) == 0
    # The random choice may be that of the fit.
    assert fitted(dk.ChosenGate(4), [dk.ChooseExperts()]) == 0
    # Nothing was trained.
    assert fitted(epochs=0) == 0


def test_experts_that_were_set_or_that_may_be_random_do_not_warn(tmp_path):
    drawn = []
    for gate in (dk.ChosenGate(2, "random"), dk.ChosenGate(initial_choices=[0, 1])):
        assert fitted(gate) == 0
    for change in (
        lambda gate: gate.choose(numpy(gate.choices)),
        lambda gate: gate.choices.assign(3 - numpy(gate.choices)),
        lambda gate: gate.set_weights([*gate.get_weights()[:2], np.full((2, 2), 3)]),
    ):
        assert fitted(change=change) == 0
    for k in range(2):
        model = dk.build_multitask_model(3, 2, gate=dk.ChosenGate(2, seed=1))
        model.compile("sgd")
        if k:  # The same as were drawn.
            model.save_weights(tmp_path / "model.weights.h5")
            model.load_weights(tmp_path / "model.weights.h5")
            model.fit(X, X[:, :2], verbose=0)
        drawn.append(numpy(model.get_layer("mmoe").gate.choices))
    assert_equal(*drawn)
    gates = [built(dk.ChosenGate(2, each, seed=1)) for each in (None, "random")]
    assert_equal(*(numpy(gate.choices) for gate in gates))
    assert gates[1].get_config()["initial_choices"] == "random"


test_what_cannot_be_chosen_is_refused = refusals(
    (chosen, "numbers below 3", ([0, 3], 3)),
    (dk.ChosenGate, "`initial_choices` must be one of 'random'", (2, "any")),
    (lambda: chosen([[0, 1]], 3, num_gates=2), r"must have the shape \(2, 'k'\)"),
    (built, "the same for all examples", (dk.ChosenGate(initial_choices=[0]), 3, 2)),
    (built(dk.SoftmaxGate()).chosen_experts, "SoftmaxGate does not choose among exp"),
    (
        built(dk.TopKGate(2), features=2).chosen_experts,
        "Only a static gate that is built has chosen",
    ),
    (built(dk.ChosenGate(2)).choose, r"`choices` must be at most 4\.", ([5, 1],)),
    (built(dk.ChosenGate(2)).choose, "`choices` must be an integer >= -1", ([-2, 1],)),
    (built(dk.ChosenGate(2)).choose, "must be an integer .*choices=2.7", ([2.7, 1],)),
    *(
        (built(dk.ChosenGate(2)).choose, r"must have the shape \(2,\), a num", given)
        for given in (([3],), ([3, 1, 2],), ([[3, 1]],), ([3, 1], [0.0]))
    ),
    (built(dk.ChosenGate(2)).choose, "must be finite", ([3, 1], [0.0, np.nan])),
    *(
        (gate.choose, "that is built and has `choices`, such as", ([1, 2],))
        for gate in (
            dk.ChosenGate(2),
            built(dk.SoftmaxGate()),
            built(dk.DSelectKGate(2), features=3),
        )
    ),
)
