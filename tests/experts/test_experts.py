"""A bank of any layers keeps a copy of the layer, and its state, for each expert."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy, value_and_gradients
from keras import layers, ops

from dselectk_keras import Experts


def sequential():
    return keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(2)])


def functional():
    inputs = keras.Input((3,))
    hidden = layers.Dense(3)(inputs)
    return keras.Model(inputs, layers.Dense(2)(layers.add([inputs, hidden])))


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
    found = numpy(bank(x))
    outputs = [numpy(expert(x)) for expert in bank.experts]
    np.testing.assert_allclose(found, np.stack(outputs, axis=1), rtol=1e-5)
    assert not np.allclose(outputs[0], outputs[1])
    assert len(bank.weights) == 3 * len(bank.experts[0].weights)
    assert not {id(w) for w in template.weights} & {id(w) for w in bank.weights}


def test_a_list_of_layers_is_the_bank():
    experts = [layers.Dense(2), layers.Dense(2, "relu")]
    bank = Experts(experts)
    x = numbers((4, 3))
    expected = np.stack([numpy(expert(x)) for expert in experts], axis=1)
    np.testing.assert_allclose(numpy(bank(x)), expected, rtol=1e-6)
    assert bank.num_experts == 2


def test_batch_normalization_learns_in_training_and_is_fixed_at_inference():
    bank = Experts(layers.BatchNormalization(momentum=0.5, epsilon=0.0), 2)
    x = np.array([[1.0], [3.0]], "float32")
    inputs = keras.Input((1,))
    model = keras.Model(inputs, bank(inputs))
    np.testing.assert_allclose(numpy(model(x, training=True))[:, 0], [[-1.0], [1.0]])
    # Half of the start (mean 0, variance 1) and half of the batch (2 and 1).
    for expert in bank.experts:
        np.testing.assert_allclose(numpy(expert.moving_mean), [1.0], rtol=1e-6)
    np.testing.assert_allclose(numpy(model(x))[:, 1], [[0.0], [2.0]], rtol=1e-6)


def test_each_expert_drops_out_for_itself_and_in_training_only():
    bank = Experts(layers.Dropout(0.5, seed=1), 2)
    x = np.ones((1, 500), "float32")
    np.testing.assert_array_equal(numpy(bank(x)), 1.0)
    first, second = numpy(bank(x, training=True))[0]
    assert set(first) == set(second) == {0.0, 2.0}
    assert 0.3 < (first == second).mean() < 0.7


def test_a_seeded_template_gives_every_expert_other_values():
    seeded = keras.initializers.RandomNormal(seed=3)
    template = keras.Sequential([layers.Dense(4, kernel_initializer=seeded)])
    bank = Experts(template, 3)
    bank.build((None, 2))
    firsts = [numpy(expert.weights[0])[0, 0] for expert in bank.experts]
    assert len(set(firsts)) == 3


def test_only_selected_experts_are_evaluated_in_the_order_asked_for():
    class Counted(layers.Dense):
        calls = 0

        def call(self, inputs):
            self.calls += 1
            return super().call(inputs)

    bank = Experts([Counted(2), Counted(2), Counted(2)])
    x = numbers((2, 3))
    expected = numpy(bank(x))[:, [2, 0]]
    np.testing.assert_allclose(numpy(bank(x, select=[2, 0])), expected, rtol=1e-6)
    assert [expert.calls for expert in bank.experts] == [2, 1, 2]


def test_gradients_reach_every_expert():
    bank = Experts(layers.Dense(2), 3)
    x = numbers((4, 3))
    bank(x)
    _, gradients = value_and_gradients(
        lambda: [ops.sum(bank(x) ** 2)], bank.trainable_variables
    )
    assert len(gradients) == 6
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_a_resized_bank_has_copies_of_the_first_expert():
    resized = Experts([layers.Dense(2, "relu"), layers.Dense(2)]).resized(3)
    assert resized(numbers((2, 3))).shape == (2, 3, 2)
    assert all(e.activation is keras.activations.relu for e in resized.experts)


def test_a_saved_bank_gives_the_same_outputs(tmp_path):
    inputs = keras.Input((5, 5, 1))
    template = keras.Sequential([layers.Conv2D(2, 3), layers.BatchNormalization()])
    model = keras.Model(inputs, Experts(template, 2)(inputs))
    x = numbers((2, 5, 5, 1))
    model(x, training=True)
    model.save(tmp_path / "bank.keras")
    loaded = keras.saving.load_model(tmp_path / "bank.keras")
    np.testing.assert_array_equal(numpy(loaded(x)), numpy(model(x)))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((layers.Dense(2),), "num_experts=None"),
        ((layers.Dense(2), 0), "num_experts=0"),
        (([layers.Dense(2)], 2), "1 layers and num_experts=2"),
        (([],), "0 layers"),
        (("dense", 2), "must be a Keras layer or model.*'dense'"),
        (([layers.Dense(2), "dense"],), "must be a Keras layer or model"),
    ],
)
def test_a_bank_that_cannot_be_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        Experts(*arguments)
