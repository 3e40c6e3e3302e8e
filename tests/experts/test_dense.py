"""A bank of dense experts is a list of dense networks, computed together."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import DenseExperts, MoE, SoftmaxGate, SoftMoE


def by_hand(bank, x, activations):
    """Keras' own dense layers with the kernels of the bank, stacked."""
    weights = [numpy(weight) for weight in bank.weights]
    outputs = []
    for i in range(bank.num_experts):
        y = x if bank.shared_input else x[:, i]
        for layer, activation in enumerate(activations):
            dense = keras.layers.Dense(weights[2 * layer].shape[-1], activation)
            dense.build(y.shape)
            dense.set_weights([w[i] for w in weights[2 * layer :][:2]])
            y = dense(y)
        outputs.append(numpy(y))
    return np.stack(outputs, axis=1)


@pytest.mark.parametrize(
    ("units", "activation", "shape", "settings"),
    [
        ([4], "relu", (2, 3), {}),
        ([4, 2], ["tanh", None], (2, 3), {}),
        ([4, 2], "relu", (2, 5, 3), {}),
        ([4, 2], ["tanh", None], (2, 5, 3), {}),
        ([4, 2], ["tanh", None], (2, 3, 3), {"shared_input": False}),
        ([4], "relu", (2, 3, 5, 3), {"shared_input": False}),
    ],
)
def test_equals_dense_layers_with_the_same_kernels(units, activation, shape, settings):
    bank = DenseExperts(3, units, activation, **settings)
    x = numbers(shape)
    bank.build(shape)
    bank.set_weights([numbers(weight.shape, seed=1) for weight in bank.weights])
    activations = activation if isinstance(activation, list) else [activation]
    expected = by_hand(bank, x, activations * (len(units) // len(activations)))
    np.testing.assert_allclose(numpy(bank(x)), expected, rtol=1e-5, atol=1e-6)


def test_integers_are_inputs_like_other_numbers():
    x = np.array([[[1, 2, 0], [3, 0, 1]]])
    for layer in (
        DenseExperts(3, [4, 2], "tanh"),
        MoE(DenseExperts(3, [4, 2], "tanh"), SoftmaxGate()),
        SoftMoE(DenseExperts(3, [2], "tanh")),
    ):
        expected = numpy(layer(x.astype("float32")))
        assert expected.all()
        np.testing.assert_allclose(numpy(layer(x)), expected, rtol=1e-6)


@pytest.mark.traced
def test_the_length_of_a_sequence_may_be_unknown():
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, DenseExperts(2, [4, 5])(inputs))
    assert model.output_shape == (None, 2, None, 5)
    assert model.predict(numbers((3, 6, 3)), verbose=0).shape == (3, 2, 6, 5)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize(
    ("shape", "units", "settings"),
    [
        ((2, 3), [4], {}),
        ((2, 5, 3), [4, 2], {}),
        ((2, 3, 5, 3), [4, 2, 6], {"shared_input": False}),
    ],
)
def test_the_shapes_of_the_outputs_are_those_of_a_call(shape, units, settings, policy):
    bank = DenseExperts(3, units, dtype=policy, **settings)
    found, output = bank(keras.KerasTensor(shape)), bank(numbers(shape))
    assert found.shape == tuple(output.shape)
    assert found.dtype == keras.backend.standardize_dtype(output.dtype)


def test_the_shapes_of_the_outputs_are_found_without_tracing(monkeypatch):
    bank = DenseExperts(3, [4, 2])
    monkeypatch.setattr(bank, "call", None)
    assert bank(keras.KerasTensor((None, 5))).shape == (None, 3, 2)
    with pytest.raises(ValueError, match="have value 5"):
        bank(keras.KerasTensor((None, 4)))


def test_each_expert_is_initialized_by_itself():
    bank = DenseExperts(64, [100], kernel_initializer="glorot_uniform")
    bank.build((None, 50))
    kernels = numpy(bank.weights[0])
    # Glorot: the variance is 2 / (fan in + fan out) of one expert, not of 64.
    np.testing.assert_allclose(kernels.var(axis=(1, 2)), 2 / 150, rtol=0.1)


def test_a_seeded_initializer_gives_every_expert_and_layer_other_values():
    seeded = keras.initializers.RandomNormal(seed=3)

    def kernels():
        bank = DenseExperts(3, [4, 4], kernel_initializer=seeded)
        bank.build((None, 4))
        return np.concatenate([numpy(w) for w in bank.weights if len(w.shape) == 3])

    first = kernels().reshape(6, -1)
    assert len(np.unique(first[:, 0])) == 6
    np.testing.assert_array_equal(first, kernels().reshape(6, -1))


def test_experts_drop_out_in_training_only_and_each_for_itself():
    bank = DenseExperts(2, [400, 400], None, dropout=0.5)
    bank.build((None, 1))
    zeros = np.zeros((2, 400))
    bank.set_weights([np.ones((2, 1, 400)), zeros, np.stack([np.eye(400)] * 2), zeros])
    x = np.ones((1, 1), "float32")
    np.testing.assert_array_equal(numpy(bank(x)), 1.0)
    # The last layer is the identity and does not drop: 0 or 2, half of each.
    first, second = numpy(bank(x, training=True))[0]
    assert set(first) == set(second) == {0.0, 2.0}
    assert 0.4 < first.mean() / 2 < 0.6
    assert 0.3 < (first == second).mean() < 0.7


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float16"])
def test_dropout_keeps_the_dtype_of_the_bank(policy):
    bank = DenseExperts(2, [4, 3], dropout=0.5, dtype=policy)
    for training in (False, True):
        found = bank(numbers((5, 3)), training=training).dtype
        assert keras.backend.standardize_dtype(found) == bank.compute_dtype


def test_gradients_reach_every_weight_of_the_experts_that_count():
    bank = DenseExperts(3, [4, 2], "tanh")
    x = numbers((5, 3))
    bank(x)
    _, gradients = value_and_gradients(
        lambda: [ops.sum(bank(x)[:, ::2] ** 2)], bank.trainable_variables
    )
    assert len(gradients) == 4
    for gradient in gradients:
        reached = [bool(np.abs(gradient[i]).max() > 0) for i in range(3)]
        assert reached == [True, False, True]


def test_parameters_are_stacked_in_the_order_of_the_layers():
    bank = DenseExperts(3, [4, 2])
    bank(numbers((2, 6)))
    shapes = [(3, 6, 4), (3, 4), (3, 4, 2), (3, 2)]
    found = bank.parameters()
    assert [tuple(p.shape) for p in found] == shapes
    for parameter, variable in zip(found, bank.weights, strict=True):
        np.testing.assert_array_equal(numpy(parameter), numpy(variable))


def merged_by_hand(bank, weights, x):
    """One dense network for each example, from mixtures of the variables."""
    outputs = []
    for example, shares in zip(x, weights, strict=True):
        y = example
        for layer, activation in enumerate(bank.activation):
            own = shares[layer] if shares.ndim > 1 else shares
            found = {w.name: numpy(w) for w in bank.weights}
            kernel = np.tensordot(own, found[f"kernel_{layer}"], 1)
            y = y @ kernel + own @ found[f"bias_{layer}"]
            y, *value = np.split(y, y.shape[-1] // bank.units[layer], axis=-1)
            y = numpy(activation(ops.convert_to_tensor(y.astype("float32"))))
            y = y * value[0] if value else y
        outputs.append(y)
    return np.stack(outputs)


def shares(*shape):
    powers = np.exp(numbers(shape, seed=7))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("shape", [(4, 5), (1, 5), (4, 6, 5), (4, 2, 3, 5)])
def test_merged_experts_are_one_dense_network_for_each_example(shape, gated):
    bank, x = DenseExperts(3, [4, 2], ["tanh", None], gated=gated), numbers(shape)
    bank.build(shape)
    bank.set_weights([numbers(w.shape, seed=i) for i, w in enumerate(bank.weights)])
    one, several = shares(shape[0], 3), shares(shape[0], 2, 3)

    def same(weights):
        """The weights of the first example, for all examples."""
        return np.repeat(weights[:1], shape[0], axis=0)

    def by_gate(weights):
        return np.stack([merged_by_hand(bank, weights[:, g], x) for g in (0, 1)], 1)

    for weights, per_example, expected in (
        (one, True, merged_by_hand(bank, one, x)),
        (one[0], False, merged_by_hand(bank, same(one), x)),
        (several, True, by_gate(several)),
        (several[0], False, by_gate(same(several))),
        # Weights for each layer.
        ([several[:, 0], several[:, 1]], True, merged_by_hand(bank, several, x)),
    ):
        found = numpy(bank.call_merged(x, weights, per_example))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_merged_experts_drop_out_in_training_only():
    bank = DenseExperts(2, [400, 400], None, dropout=0.5)
    bank.build((None, 1))
    zeros = np.zeros((2, 400))
    bank.set_weights([np.ones((2, 1, 400)), zeros, np.stack([np.eye(400)] * 2), zeros])
    x, weights = np.ones((1, 1), "float32"), np.full(2, 0.5, "float32")
    np.testing.assert_array_equal(numpy(bank.call_merged(x, weights)), 1.0)
    dropped = numpy(bank.call_merged(x, weights, training=True))
    assert set(dropped[0]) == {0.0, 2.0}


# JAX has no float64 by default, and warns.
ON_JAX = keras.backend.backend() == "jax"


@pytest.mark.parametrize(
    "dtype", ["float32", "mixed_float16", *([] if ON_JAX else ["float64"])]
)
def test_merged_experts_compute_in_the_dtype_of_the_bank(dtype):
    bank = DenseExperts(2, [4, 3], dtype=dtype)
    x = numbers((2, 5))
    bank(x)
    merged = bank.call_merged(x, shares(2, 2), True)
    wanted = keras.DTypePolicy(dtype).compute_dtype
    assert keras.backend.standardize_dtype(merged.dtype) == wanted


def test_towers_cannot_be_merged():
    with pytest.raises(ValueError, match=r"see one input.*shared_input=False"):
        DenseExperts(2, [3], shared_input=False).check_mergeable()
    with pytest.raises(ValueError, match=r"and have one output.*activity_regul"):
        DenseExperts(2, [3], activity_regularizer="l2").check_mergeable()
    DenseExperts(2, [3]).check_mergeable()


# Gated experts.


def gated_bank(x, units=(4, 2), **settings):
    activations = [*["silu"] * (len(units) - 1), None]
    bank = DenseExperts(3, units, activations, gated=True, **settings)
    bank.build(x.shape)
    bank.set_weights([numbers(w.shape, seed=i) for i, w in enumerate(bank.weights)])
    return bank


@pytest.mark.parametrize("units", [(4, 2), (4, 3, 2), (260, 2)])
@pytest.mark.parametrize("shape", [(2, 5), (2, 6, 5), (2, 3, 5)])
def test_gated_experts_are_swiglu_networks(shape, units):
    x = numbers(shape)
    own_inputs = shape[1] == 3
    bank = gated_bank(x, units, shared_input=not own_inputs)
    assert [tuple(w.shape) for w in bank.weights[:2]] == [
        (3, 5, 2 * units[0]),
        (3, 2 * units[0]),
    ]
    expected = []
    for i in range(3):
        y = x[:, i] if own_inputs else x
        own = [numpy(weight)[i] for weight in bank.weights]
        *hidden, last = zip(own[::2], own[1::2], strict=True)
        for kernel, bias in hidden:
            (w, v), (b, c) = np.split(kernel, 2, axis=1), np.split(bias, 2)
            gate = y @ w + b
            y = gate / (1 + np.exp(-gate)) * (y @ v + c)
        expected.append(y @ last[0] + last[1])
    np.testing.assert_allclose(
        numpy(bank(x)), np.stack(expected, axis=1), rtol=1e-4, atol=1e-4
    )
    assert bank(keras.KerasTensor(shape)).shape == bank(x).shape


def test_the_gradient_of_gated_experts_by_hand():
    x = numbers((6, 5))
    bank = gated_bank(x)
    _, found = value_and_gradients(lambda: [ops.sum(bank(x))], bank.trainable_variables)
    kernel, bias, last, _ = map(numpy, bank.weights)
    for i in range(3):
        gate, value = np.split(x @ kernel[i] + bias[i], 2, axis=1)
        share = 1 / (1 + np.exp(-gate))
        by_hidden = last[i].sum(axis=1)
        by_gate = by_hidden * value * share * (1 + gate * (1 - share))
        by_product = np.concatenate([by_gate, by_hidden * gate * share], axis=1)
        by_last = np.repeat((gate * share * value).sum(axis=0)[:, None], 2, axis=1)
        wanted = [x.T @ by_product, by_product.sum(axis=0), by_last, [6.0, 6.0]]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one[i], other, rtol=1e-3, atol=1e-4)


def test_each_product_of_a_gate_is_initialized_by_itself():
    seeded = keras.initializers.GlorotUniform(seed=3)
    for initializer in ("glorot_uniform", seeded):
        bank = DenseExperts(64, [100, 2], gated=True, kernel_initializer=initializer)
        bank.build((None, 50))
        for half in np.split(numpy(bank.weights[0]), 2, axis=-1):
            np.testing.assert_allclose(half.var(axis=(1, 2)), 2 / 150, rtol=0.1)
        columns = numpy(bank.weights[0])[:, 0]
        assert len(np.unique(columns.round(6))) > 0.9 * columns.size


def test_gated_experts_are_dispatched_and_sliced_as_others():
    x = numbers((12, 5))
    bank = gated_bank(x)
    outputs = numpy(bank(x))
    np.testing.assert_array_equal(numpy(bank.sliced([2, 0])(x)), outputs[:, [2, 0]])
    slots = numpy(bank.call_slots(ops.convert_to_tensor(x))).reshape(3, 4, 2)
    wanted = [outputs[4 * i : 4 * i + 4, i] for i in range(3)]
    np.testing.assert_allclose(slots, wanted, rtol=1e-5, atol=1e-5)


def test_gated_experts_drop_out_behind_the_gate():
    bank = DenseExperts(2, [400, 400], None, dropout=0.5, gated=True)
    bank.build((None, 1))
    one, eye = np.ones((2, 1, 800)), np.stack([np.eye(400)] * 2)
    bank.set_weights([one, np.zeros((2, 800)), eye, np.zeros((2, 400))])
    x = np.ones((1, 1), "float32")
    np.testing.assert_array_equal(numpy(bank(x)), 1.0)
    assert set(numpy(bank(x, training=True)).ravel()) == {0.0, 2.0}


def test_a_resized_bank_differs_in_number_only():
    bank = DenseExperts(3, [4, 2], ["relu", None], dropout=0.1, name="bank")
    bank.build((None, 3))
    resized = bank.resized(5)
    same = {"num_experts", "name"}
    config, other = bank.get_config(), resized.get_config()
    assert {key for key in config if config[key] != other[key]} == same
    assert not resized.built
    assert resized(numbers((2, 3))).shape == (2, 5, 2)


def test_the_config_rebuilds_the_bank():
    bank = DenseExperts(
        2,
        [4, 2],
        ["relu", None],
        0.2,
        kernel_initializer=keras.initializers.HeNormal(seed=1),
        shared_input=False,
        gated=True,
        name="towers",
    )
    rebuilt = DenseExperts.from_config(bank.get_config())
    assert rebuilt.get_config() == bank.get_config()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_experts": 0}, "num_experts=0"),
        ({"units": []}, r"units=\[\]"),
        ({"units": [4, 0]}, "units=0"),
        ({"activation": ["relu", None]}, "Received: 2 for 1 layers"),
        ({"dropout": -0.1}, "at least 0 and at most 1. Received: dropout=-0.1"),
        ({"gated": True}, r"gates hidden layers.* Received: units=\[3\]"),
    ],
)
def test_a_bank_that_cannot_be_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        DenseExperts(**{"num_experts": 2, "units": [3], **arguments})


def test_calls_that_cannot_be_right_are_refused():
    for shape in ((2,), (None, 0), (None, "x"), 5, None):
        with pytest.raises(ValueError, match="`input_shape` must be a shape with"):
            DenseExperts(2, [3]).build(shape)
    for shape in ((2, 3), (4, 3, 5)):
        with pytest.raises(ValueError, match="the inputs need an axis of 2"):
            DenseExperts(2, [3], shared_input=False).build(shape)
    own = DenseExperts(2, [3], shared_input=False)
    own.build((4, 2, 5))
    with pytest.raises(ValueError, match=r"axis 1 .* value 2, .*\(4, 3, 5\)"):
        own(numbers((4, 3, 5)))
