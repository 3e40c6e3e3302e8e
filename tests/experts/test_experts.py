"""A bank of any layers keeps a copy of the layer, and its state, for each expert."""

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import built, numbers, numpy, refusals, shares, weight_gradients
from keras import layers, ops

from dselectk_keras import Experts
from dselectk_keras.initializers import copy_layer


def sequential():
    return keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(2)])


def functional():
    first, second = layers.Dense(3), layers.Dense(2)
    return helpers.model_of(lambda x: second(layers.add([x, first(x)])), 3)


TEMPLATES = {
    "dense": (lambda: layers.Dense(2), (2, 3)),
    "convolution": (lambda: layers.Conv2D(2, 3), (2, 5, 5, 1)),
    "sequential": (sequential, (2, 3)),
    "functional": (functional, (2, 3)),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_evaluates_copies_of_a_template_that_have_their_own_weights(name):
    make, shape = TEMPLATES[name]
    template, x = make(), numbers(shape)
    bank = Experts(template, 3)
    found = bank(x)
    outputs = [numpy(expert(x)) for expert in bank.experts]
    assert_close(found, np.stack(outputs, axis=1), rtol=1e-5)
    assert not np.allclose(outputs[0], outputs[1])
    assert len(bank.weights) == 3 * len(bank.experts[0].weights)
    assert not {id(w) for w in template.weights} & {id(w) for w in bank.weights}


@pytest.mark.parametrize("inner", [False, True])
def test_copies_have_what_the_template_got_from_data(inner):
    normalization = layers.Normalization()
    normalization.adapt(np.array([[1.0, 4.0], [3.0, 8.0]]))
    template = normalization
    if inner:
        dense = layers.Dense(2, kernel_initializer="identity")
        template = keras.Sequential([normalization, dense])
    bank = Experts(template, 2)
    bank.trainable = False
    copies = [bank, bank.resized(2), copy_layer(bank, 1)]
    for each in (*copies, bank):
        found = numpy(each(np.array([[3.0, 4.0]], "float32")))
        assert_close(found, [[[1.0, -1.0]] * 2], rtol=1e-5)
        # They share nothing.
        normalization.adapt(np.array([[7.0, 8.0], [9.0, 9.0]]))


@pytest.mark.parametrize("name", ["StringLookup", "TextVectorization"])
def test_copies_have_the_vocabulary_of_the_template(name):
    template = getattr(layers, name)()
    assert len(Experts(template, 2).experts) == 2
    template.adapt(np.array(["b", "a", "b"]))
    for expert in Experts(template, 2).experts:
        assert expert.get_vocabulary() == template.get_vocabulary()


def test_a_list_of_layers_is_the_bank():
    experts = [layers.Dense(2), layers.Dense(2, "relu")]
    bank, x = Experts(experts), numbers((4, 3))
    expected = np.stack([numpy(expert(x)) for expert in experts], axis=1)
    assert_close(bank(x), expected, rtol=1e-6)
    assert bank.num_experts == 2


def test_dropout_and_normalization_learn_in_training_and_are_fixed_at_inference():
    bank = Experts(layers.BatchNormalization(momentum=0.5, epsilon=0.0), 2)
    x = np.array([[1.0], [3.0]], "float32")
    model = helpers.model_of(bank, 1)
    assert_close(numpy(model(x, training=True))[:, 0], [[-1.0], [1.0]])
    # Half of the start (mean 0, variance 1) and half of the batch (2 and 1).
    for expert in bank.experts:
        assert_close(expert.moving_mean, [1.0], rtol=1e-6)
    assert_close(numpy(model(x))[:, 1], [[0.0], [2.0]], rtol=1e-6)
    bank = Experts(layers.Dropout(0.5, seed=1), 2)
    x = np.ones((1, 500), "float32")
    assert_equal(bank(x), 1.0)
    first, second = numpy(bank(x, training=True))[0]
    assert set(first) == set(second) == {0.0, 2.0}
    assert 0.3 < (first == second).mean() < 0.7


def test_every_expert_gets_other_values_and_a_gradient():
    seeded = keras.initializers.RandomNormal(seed=3)
    template = keras.Sequential([layers.Dense(4, kernel_initializer=seeded)])
    bank = built(Experts(template, 3), 2)
    firsts = [numpy(expert.weights[0])[0, 0] for expert in bank.experts]
    assert len(set(firsts)) == 3
    bank = Experts(layers.Dense(2), 3)
    x = numbers((4, 3))
    bank(x)
    gradients = weight_gradients(bank, lambda: ops.sum(bank(x) ** 2))
    assert len(gradients) == 6
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_a_slice_keeps_weights_and_what_layers_got_from_data():
    # On torch, what `Normalization` got is a view of its weights.
    x = numbers((20, 3))
    experts = []
    for scale in (1.0, 5.0, 9.0):
        normal = layers.Normalization()
        normal.adapt(scale * x + scale)
        experts.append(keras.Sequential([keras.Input((3,)), normal, layers.Dense(2)]))
    bank = Experts(experts)
    wanted = numpy(bank(x))[:, [2, 0]]
    assert_close(bank.sliced([2, 0])(x), wanted, rtol=1e-6)


@pytest.mark.backend_independent
def test_a_resized_bank_keeps_its_settings_and_is_not_frozen():
    bank = Experts(sequential(), 2, shared_input=False)
    assert not bank.resized(4).shared_input
    assert bank.resized(4, shared_input=True).shared_input
    resized = Experts([layers.Dense(2, "relu"), layers.Dense(2)]).resized(3)
    assert resized(numbers((2, 3))).shape == (2, 3, 2)
    assert all(e.activation is keras.activations.relu for e in resized.experts)
    frozen = Experts(keras.Sequential([keras.Input((3,)), layers.Dense(2)]), 2)
    frozen.trainable = False
    assert len(built(frozen.resized(3), 3).trainable_variables) == 6
    assert not frozen.trainable_variables


@pytest.mark.backend_independent
def test_each_expert_may_see_an_input_of_its_own():
    bank, x = Experts(sequential(), 3, shared_input=False), numbers((2, 3, 5))
    found = bank(x)
    expected = [numpy(expert(x[:, i])) for i, expert in enumerate(bank.experts)]
    assert_close(found, np.stack(expected, axis=1), rtol=1e-5)
    with pytest.raises(ValueError, match=r"axis 1 .* value 3, .*\(2, 2, 5\)"):
        bank(x[:, :2])


@pytest.mark.backend_independent
def test_parameters_are_stacked_by_expert():
    bank = built(Experts(sequential(), 3))
    found = bank.parameters()
    assert [tuple(p.shape) for p in found] == [(3, 5, 4), (3, 4), (3, 4, 2), (3, 2)]
    for parameter, *own in zip(
        found, *(expert.trainable_variables for expert in bank.experts), strict=True
    ):
        assert_equal([*numpy(parameter)], own)


def merged_by_hand(bank, weights, x):
    """One expert at a time, with mixtures of all the experts' variables."""
    scratch, outputs = Experts(bank.experts[0], 1), []
    scratch.build(x.shape)
    for example, own in zip(x, weights, strict=True):
        scratch.set_weights([np.tensordot(own, numpy(p), 1) for p in bank.parameters()])
        outputs.append(numpy(scratch(example[None]))[0, 0])
    return np.stack(outputs)


@pytest.mark.parametrize("name", TEMPLATES)
def test_merged_copies_are_one_expert_for_each_example(name):
    make, shape = TEMPLATES[name]
    bank, x = Experts(make(), 3), numbers(shape)
    bank(x)
    one, several = shares(2, 3), shares(2, 2, 3)
    by_gate = [merged_by_hand(bank, several[:, g], x) for g in range(2)]
    for weights, per_example, expected in (
        (one, True, merged_by_hand(bank, one, x)),
        (one[0], False, merged_by_hand(bank, one[[0, 0]], x)),
        (several, True, np.stack(by_gate, axis=1)),
    ):
        found = bank.call_merged(x, weights, per_example)
        assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_partly_frozen_experts_are_merged_with_their_frozen_parts():
    template = keras.Sequential([layers.Dense(5, "tanh"), layers.Dense(2)])
    template.layers[0].trainable = False
    bank, x = Experts(template, 3), numbers((4, 3))
    bank(x)
    assert len(bank.trainable_variables) == 3 * 2
    bank.check_mergeable()
    assert len(bank.parameters()) == 4
    merged = bank.call_merged(x, ops.convert_to_tensor([0.0, 1.0, 0.0]))
    assert_close(merged, bank.experts[1](x), rtol=1e-5, atol=1e-6)


def test_seeds_of_copies_stay_those_of_all_backends():
    bank = Experts(layers.Dropout(0.5, seed=2**31 - 1), 2)
    seeds = [expert.seed for expert in bank.experts]
    assert seeds == [2**31 - 1, 1_000_002]


def bank(*arguments, quantized=False, frozen=False):
    made = built(Experts(*arguments), 4)
    for expert in made.experts if quantized else ():
        expert.quantize("int8")
    made.trainable = not frozen
    return made


def with_state(layer):
    return bank(keras.Sequential([layers.Dense(4), layer]), 2)


LIST = [layers.Dense(2), layers.Dense(2, "relu")]
test_what_cannot_be_is_refused = refusals(
    (Experts, "num_experts=None", layers.Dense(2)),
    (Experts, "num_experts=0", (layers.Dense(2), 0)),
    (Experts, "1 layers and num_experts=2", ([layers.Dense(2)], 2)),
    (Experts, "0 layers", []),
    (Experts, "must be a Keras layer or model.*'dense'", ("dense", 2)),
    (Experts, "must be a Keras layer or model", [layers.Dense(2), "dense"]),
    (
        Experts(sequential(), 3, shared_input=False),
        r"the inputs need an axis of 3.*\(2, 2, 5\)",
        numbers((2, 2, 5)),
    ),
)
test_what_cannot_be_merged_is_refused = refusals(
    (lambda: bank(LIST).check_mergeable(), r"Only copies of one layer.*num_experts"),
    (lambda: bank(LIST).parameters(), r"Only copies of one layer.*num_experts"),
    *(
        (
            lambda frozen: bank(
                layers.Dense(2), 3, quantized=True, frozen=frozen
            ).call_merged(numbers((2, 4)), shares(3)),
            r"Quantized experts.*expert_0.*int8",
            frozen,
        )
        for frozen in (False, True)
    ),
    (
        lambda layer: with_state(layer).check_mergeable(),
        "Experts with a state of their own",
        *(layers.BatchNormalization(), layers.Dropout(0.5)),
    ),
    (
        bank(layers.Dense(2, activity_regularizer="l2"), 2).check_mergeable,
        r"no `activity_regularizer`.*'expert_0' with.*L2",
    ),
    (
        Experts(layers.Dense(2), 2, shared_input=False).check_mergeable,
        r"see one input.*shared_input=False",
    ),
    (
        built(Experts(layers.Dense(2), 2), 4).call_merged,
        "are merged as a whole",
        (numbers((2, 4)), [shares(2, 2)], True),
    ),
)
