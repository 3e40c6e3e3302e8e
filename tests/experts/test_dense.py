"""A bank of dense experts is a list of dense networks, computed together."""

from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import built, numbers, numpy, refusals, shares, spread, weight_gradients
from keras import ops

from dselectk_keras import DenseExperts, MoE, SoftmaxGate
from dselectk_keras.baselines import SoftMoE


@pytest.mark.parametrize("shared_input", [True, False])
@pytest.mark.parametrize("shape", [(6, 5), (6, 2, 5)])
def test_float64_is_not_rounded(shape, shared_input):
    if keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 by default.")
    settings = {"dtype": "float64", "shared_input": shared_input}
    bank = DenseExperts(3, [4], None, **settings)
    axis = [] if shared_input else [3]
    x = np.random.default_rng(0).normal(size=(shape[0], *axis, *shape[1:]))
    found = numpy(bank(ops.convert_to_tensor(x, "float64")))
    kernel = numpy(bank.weights[0])
    n, middle = "" if shared_input else "n", "m" * (len(shape) - 2)
    wanted = np.einsum(f"b{n}{middle}d,ndh->bn{middle}h", x, kernel)
    assert_close(found, wanted, rtol=1e-12)
    if shared_input:
        weights = np.array([0.2, 0.3, 0.5])
        merged = bank.call_merged(x, ops.convert_to_tensor(weights, "float64"))
        assert_close(merged, np.einsum("n,bn...->b...", weights, wanted), rtol=1e-12)


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
    assert_close(bank(x), expected, rtol=1e-5, atol=1e-6)


def test_integers_are_inputs_like_other_numbers():
    x = np.array([[[1, 2, 0], [3, 0, 1]]])
    for layer in (
        DenseExperts(3, [4, 2], "tanh"),
        MoE(DenseExperts(3, [4, 2], "tanh"), SoftmaxGate()),
        SoftMoE(DenseExperts(3, [2], "tanh")),
    ):
        expected = numpy(layer(x.astype("float32")))
        assert expected.all()
        assert_close(layer(x), expected, rtol=1e-6)


@pytest.mark.traced
def test_shapes_are_found_without_tracing_and_for_any_length(monkeypatch):
    bank = DenseExperts(3, [4, 2])
    monkeypatch.setattr(bank, "call", None)
    assert bank(keras.KerasTensor((None, 5))).shape == (None, 3, 2)
    with pytest.raises(ValueError, match="have value 5"):
        bank(keras.KerasTensor((None, 4)))
    own_inputs = DenseExperts(3, [4, 2], shared_input=False)
    assert own_inputs(keras.KerasTensor((None, 3, 5, 6))).shape == (None, 3, 5, 2)
    model = helpers.model_of(DenseExperts(2, [4, 5]), None, 3)
    assert model.output_shape == (None, 2, None, 5)
    assert model.predict(numbers((3, 6, 3)), verbose=0).shape == (3, 2, 6, 5)


def test_each_expert_and_layer_is_initialized_by_itself():
    bank = built(DenseExperts(64, [100], kernel_initializer="glorot_uniform"), 50)
    kernels = numpy(bank.weights[0])
    # Glorot: the variance is 2 / (fan in + fan out) of one expert, not of 64.
    assert_close(kernels.var(axis=(1, 2)), 2 / 150, rtol=0.1)
    seeded = keras.initializers.RandomNormal(seed=3)

    def kernels():
        bank = built(DenseExperts(3, [4, 4], kernel_initializer=seeded), 4)
        return np.concatenate([numpy(w) for w in bank.weights if len(w.shape) == 3])

    first = kernels().reshape(6, -1)
    assert len(np.unique(first[:, 0])) == 6
    assert_equal(first, kernels().reshape(6, -1))


@pytest.mark.parametrize("gated", [False, True])
def test_experts_drop_out_in_training_only_and_each_for_itself(gated):
    bank = built(DenseExperts(2, [400, 400], None, dropout=0.5, gated=gated), 1)
    width, last = 400 * (1 + gated), np.stack([np.eye(400)] * 2)
    first, zeros = np.ones((2, 1, width)), np.zeros((2, 400))
    bank.set_weights([first, np.zeros((2, width)), last, zeros])
    x, half = np.ones((1, 1), "float32"), np.full(2, 0.5, "float32")
    assert_equal(bank(x), 1.0)
    assert_equal(bank.call_merged(x, half), 1.0)
    # The last layer is the identity and does not drop: 0 or 2, half of each.
    first, second = numpy(bank(x, training=True))[0]
    assert set(first) == set(second) == {0.0, 2.0}
    assert 0.4 < first.mean() / 2 < 0.6
    assert 0.3 < (first == second).mean() < 0.7
    assert set(numpy(bank.call_merged(x, half, training=True))[0]) == {0.0, 2.0}


def test_gradients_reach_every_weight_of_the_experts_that_count():
    bank = DenseExperts(3, [4, 2], "tanh")
    x = numbers((5, 3))
    bank(x)
    gradients = weight_gradients(bank, lambda: ops.sum(bank(x)[:, ::2] ** 2))
    assert len(gradients) == 4
    for gradient in gradients:
        assert [part.any() for part in gradient] == [True, False, True]


@pytest.mark.backend_independent
def test_parameters_are_stacked_in_the_order_of_the_layers():
    bank = DenseExperts(3, [4, 2])
    bank(numbers((2, 6)))
    found, shapes = bank.parameters(), [(3, 6, 4), (3, 4), (3, 4, 2), (3, 2)]
    assert [tuple(p.shape) for p in found] == shapes
    assert_equal(found, bank.weights)


def merged_by_hand(bank, weights, x):
    """One dense network for each example, from mixtures of the variables."""
    outputs = []
    for example, of_experts in zip(x, weights, strict=True):
        y = example
        for layer, activation in enumerate(bank.activation):
            own = of_experts[layer] if of_experts.ndim > 1 else of_experts
            found = {w.name: numpy(w) for w in bank.weights}
            kernel = np.tensordot(own, found[f"kernel_{layer}"], 1)
            y = y @ kernel + own @ found[f"bias_{layer}"]
            y, *value = np.split(y, y.shape[-1] // bank.units[layer], axis=-1)
            y = numpy(activation(ops.convert_to_tensor(y.astype("float32"))))
            y = y * value[0] if value else y
        outputs.append(y)
    return np.stack(outputs)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("shape", [(4, 5), (1, 5), (4, 6, 5), (4, 2, 3, 5)])
def test_merged_experts_are_one_dense_network_for_each_example(shape, gated):
    bank, x = DenseExperts(3, [4, 2], ["tanh", None], gated=gated), numbers(shape)
    bank.build(shape)
    spread(bank)
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
        found = bank.call_merged(x, weights, per_example)
        assert_close(found, expected, rtol=1e-4, atol=1e-5)


def gated_bank(x, units=(4, 2), **settings):
    activations = [*["silu"] * (len(units) - 1), None]
    bank = DenseExperts(3, units, activations, gated=True, **settings)
    bank.build(x.shape)
    return spread(bank)


@pytest.mark.parametrize("units", [(4, 2), (4, 3, 2), (260, 2)])
@pytest.mark.parametrize("shape", [(2, 5), (2, 6, 5), (2, 3, 5)])
def test_gated_experts_are_swiglu_networks(shape, units):
    x = numbers(shape)
    own_inputs = shape[1] == 3
    bank = gated_bank(x, units, shared_input=not own_inputs)
    kernel, bias = (tuple(w.shape) for w in bank.weights[:2])
    assert (kernel, bias) == ((3, 5, 2 * units[0]), (3, 2 * units[0]))
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
    assert_close(bank(x), np.stack(expected, axis=1), rtol=1e-4, atol=1e-4)
    assert bank(keras.KerasTensor(shape)).shape == bank(x).shape


@pytest.mark.backend_independent
def test_each_product_of_a_gate_is_initialized_by_itself():
    seeded = keras.initializers.GlorotUniform(seed=3)
    for initializer in ("glorot_uniform", seeded):
        bank = DenseExperts(64, [100, 2], gated=True, kernel_initializer=initializer)
        built(bank, 50)
        for half in np.split(numpy(bank.weights[0]), 2, axis=-1):
            assert_close(half.var(axis=(1, 2)), 2 / 150, rtol=0.1)
        columns = numpy(bank.weights[0])[:, 0]
        assert len(np.unique(columns.round(6))) > 0.9 * columns.size


def test_gated_experts_are_dispatched_and_sliced_as_others():
    x = numbers((12, 5))
    bank = gated_bank(x)
    outputs = numpy(bank(x))
    assert_equal(bank.sliced([2, 0])(x), outputs[:, [2, 0]])
    slots = numpy(bank.call_slots(ops.convert_to_tensor(x))).reshape(3, 4, 2)
    wanted = [outputs[4 * i : 4 * i + 4, i] for i in range(3)]
    assert_close(slots, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.backend_independent
def test_a_resized_bank_differs_in_number_only():
    bank = built(DenseExperts(3, [4, 2], ["relu", None], dropout=0.1, name="bank"), 3)
    resized = bank.resized(5)
    same = {"num_experts", "name"}
    config, other = bank.get_config(), resized.get_config()
    assert {key for key in config if config[key] != other[key]} == same
    assert not resized.built
    assert resized(numbers((2, 3))).shape == (2, 5, 2)


def build(shape=(4, 3), num_experts=2, units=(3,), **settings):
    DenseExperts(num_experts, units, **settings).build(shape)


OWN = DenseExperts(2, [3], shared_input=False)
OWN.build((4, 2, 5))
test_what_cannot_be_is_refused = refusals(
    (build, "num_experts=0", {"num_experts": 0}),
    (build, r"units=\[\]", {"units": []}),
    (build, "units=0", {"units": [4, 0]}),
    (build, "Received: 2 for 1 layers", {"activation": ["relu", None]}),
    (build, "at least 0 and at most 1. Received: dropout=-0.1", {"dropout": -0.1}),
    (build, r"gates hidden layers.* Received: units=\[3\]", {"gated": True}),
    *(
        (build, "`input_shape` must be a shape with", {"shape": shape})
        for shape in ((2,), (None, 0), (None, "x"), 5, None)
    ),
    *(
        (partial(build, shared_input=False), "the inputs need an axis of 2", (shape,))
        for shape in ((2, 3), (4, 3, 5))
    ),
    (OWN, r"axis 1 .* value 2, .*\(4, 3, 5\)", numbers((4, 3, 5))),
    (OWN.check_mergeable, r"see one input.*shared_input=False"),
    (
        DenseExperts(2, [3], activity_regularizer="l2").check_mergeable,
        r"and have one output.*activity_regul",
    ),
)
