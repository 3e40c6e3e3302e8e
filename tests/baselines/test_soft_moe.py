"""Experts see mixtures of tokens, and tokens get mixtures of experts."""

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed
from helpers import numbers, numpy, reloaded, softmax, spread, value_and_gradients
from keras import layers, ops

from dselectk_keras import DenseExperts, Experts
from dselectk_keras.baselines import SoftMoE

N, SLOTS, BATCH, TOKENS, DIM = 3, 2, 2, 5, 4
X = numbers((BATCH, TOKENS, DIM))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def built(bank=None, *, shape=X.shape, **settings):
    bank = DenseExperts(N, [6, 3], ["tanh", None]) if bank is None else bank
    layer = SoftMoE(bank, **{"num_slots": SLOTS, **settings})
    layer.build(shape)
    return spread(layer)


def dispatch_and_combine(layer, x):
    kernel = numpy(layer._kernel)
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    kernel = kernel / np.linalg.norm(kernel, axis=0) * numpy(layer._scale)
    logits = x @ kernel
    return softmax(logits, axis=1), softmax(logits, axis=2)


def by_hand(layer, x):
    """Slot by slot, and expert by expert."""
    dispatch, combine = dispatch_and_combine(layer, x)
    w0, b0, w1, b1 = map(numpy, layer.experts.weights)
    outputs = 0.0
    for place in range(layer.experts.num_experts * layer.num_slots):
        expert = place // layer.num_slots
        slot = np.einsum("bt,btd->bd", dispatch[:, :, place], x)
        filled = np.tanh(slot @ w0[expert] + b0[expert]) @ w1[expert] + b1[expert]
        outputs = outputs + combine[:, :, place, None] * filled[:, None]
    return outputs


@pytest.mark.parametrize("num_slots", [1, 2])
def test_equals_the_equations_slot_by_slot(num_slots):
    layer = built(num_slots=num_slots)
    assert_close(layer(X), by_hand(layer, X), **CLOSE)
    # In a batch of one as well.
    assert_close(layer(X[:1]), by_hand(layer, X)[:1], **CLOSE)


def test_the_weights_of_an_expert_are_those_of_its_slots():
    layer = built()
    _, combine = dispatch_and_combine(layer, X)
    expected = combine.reshape(BATCH, TOKENS, N, SLOTS).sum(axis=-1)
    assert_close(layer.expert_weights(X), expected, **CLOSE)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], "bool")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_padding_fills_no_slot(dtype):
    layer = built(dtype=dtype)
    tokens = numbers((3, TOKENS, DIM), seed=7)
    y = numpy(layer(np.where(MASK[..., None], tokens, np.nan), mask=MASK))
    assert_equal(y[~MASK], 0.0)
    close = CLOSE if dtype == "float32" else {"rtol": 0.02, "atol": 0.02}
    assert_close(y[0, :3], by_hand(layer, tokens[:1, :3])[0], **close)
    assert_close(y[1], by_hand(layer, tokens[1:2])[0], **close)


def test_padding_has_no_gradient():
    layer = built()
    x = np.where(MASK[..., None], numbers((3, TOKENS, DIM)), np.float32(np.inf))
    x = keras.Variable(x)
    variables = [x, *layer.trainable_variables]
    _, (by_tokens, *others) = value_and_gradients(
        lambda: [ops.sum(ops.square(layer(x.value, mask=MASK)))], variables
    )
    assert_equal(by_tokens[~MASK], 0.0)
    assert np.abs(by_tokens[MASK]).max() > 0
    assert all(np.isfinite(gradient).all() for gradient in others)


@pytest.mark.traced
def test_a_mask_of_an_embedding_is_used_and_passed_on():
    ids = np.array([[1, 2, 3, 0, 0], [4, 5, 1, 2, 3]])
    inputs = keras.Input((None,), dtype="int32")
    tokens = layers.Embedding(6, DIM, mask_zero=True)(inputs)
    outputs = SoftMoE(DenseExperts(N, [3]), SLOTS)(tokens)
    model = keras.Model(inputs, layers.GlobalAveragePooling1D()(outputs))
    found, short = (model.predict(x, verbose=0) for x in (ids, ids[:1, :3]))
    assert_close(found[:1], short, **CLOSE)


def test_gradients_reach_tokens_slots_and_experts_and_are_small_for_zeros():
    layer = built()
    for zeros in (False, True):
        x = keras.Variable(np.where([[[1]], [[0]]], X, 0.0) if zeros else X)
        variables = [*layer.trainable_variables, x]
        assert len(variables) == 2 + 4 + 1
        (value,), gradients = value_and_gradients(
            lambda x=x: [ops.sum(layer(ops.convert_to_tensor(x)) ** 2)], variables
        )
        assert np.isfinite(value)
        for variable, found in zip(variables, gradients, strict=True):
            # In half precision, large ones would be infinite.
            assert np.abs(found).max() < 100
            assert zeros or found.any(), variable.path


def test_any_layers_may_be_the_experts():
    for experts in (
        [layers.Dense(3, "relu"), layers.Dense(3)],
        Experts([layers.Dense(3, "relu"), layers.Dense(3)]),
        Experts([layers.Dense(3, "relu"), layers.Dense(3)], shared_input=False),
    ):
        layer = built(experts)
        # Each as it was given: the bank that is needed is not made of the first.
        found = [expert.activation for expert in layer.experts.experts]
        assert found == [keras.activations.relu, keras.activations.linear]
        dispatch, combine = dispatch_and_combine(layer, X)
        slots = (np.swapaxes(dispatch, 1, 2) @ X).reshape(BATCH, 2, SLOTS, DIM)
        filled = numpy(layer.experts(slots.astype("float32")))
        assert_close(layer(X), combine @ filled.reshape(BATCH, 2 * SLOTS, 3), **CLOSE)


def test_a_bank_is_given_own_inputs_and_told_of_training():
    bank = DenseExperts(N, [3], shared_input=False)
    assert SoftMoE(bank).experts is bank
    replaced = SoftMoE(DenseExperts(N, [3], "tanh", name="mine")).experts
    assert not replaced.shared_input
    assert (replaced.num_experts, replaced.name) == (N, "mine")
    # Its weights would be lost.
    with pytest.raises(ValueError, match="'mine', built already"):
        SoftMoE(helpers.built(DenseExperts(N, [3], name="mine"), DIM))
    layer = built([layers.Dropout(0.5), layers.Dropout(0.5)])
    assert np.allclose(numpy(layer(X)), numpy(layer(X)))
    assert not np.allclose(numpy(layer(X, training=True)), numpy(layer(X)))


@pytest.mark.traced
def test_trains_on_sequences_of_any_length_and_reloads_to_the_bit(tmp_path):
    inputs = keras.Input((None, DIM))
    dense = SoftMoE(DenseExperts(N, [6, 3], "tanh"), SLOTS)
    copies = SoftMoE([layers.Dense(3), layers.Dense(3, "relu")], SLOTS)
    outputs = layers.Concatenate()([dense(inputs), copies(inputs)])
    assert outputs.shape == (None, None, 6)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    y = numbers((BATCH, TOKENS, 6))
    assert all(changed(model.trainable_variables, lambda: model.fit(X, y, verbose=0)))
    loaded = reloaded(model, tmp_path)
    for x in (X, X[:1, :3]):
        assert_equal(loaded(x), model(x))
    banks = (loaded.get_layer(copies.name).experts, copies.experts)
    again, activations = ([e.activation for e in bank.experts] for bank in banks)
    assert again == activations


DENSE = DenseExperts(2, [3])
test_what_cannot_be_right_is_refused = helpers.refusals(
    (SoftMoE, r"`experts` must be a bank.*'dense'", "dense"),
    (SoftMoE, "`num_slots` must be a positive integer", (DENSE, 0)),
    (SoftMoE(DENSE), r"\(batch, tokens, features\).*\(2, 4\)", numbers((2, 4))),
)
