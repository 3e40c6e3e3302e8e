"""Properties of all layers with experts and a gate."""

import warnings

import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import model_of, numbers, numpy
from keras import ops

from dselectk_keras import (
    CGC,
    ChosenGate,
    DenseExperts,
    DSelectKGate,
    Experts,
    MMoE,
    MoE,
    SmearExperts,
    SoftmaxGate,
    TopKGate,
)
from dselectk_keras._keras import mask_of
from dselectk_keras.baselines import AttentiveGate, AttentiveMoE

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize("shape", [5, None, (), "abc", (None, 0), [(None, 3)]])
def test_what_is_no_shape_is_refused_by_name(shape):
    layer = MoE(DenseExperts(3, [4]), SoftmaxGate(), per_example=True)
    given = ((shape,), "inputs_shape"), (((None, 3), shape), "routing_inputs_shape")
    for shapes, name in given if shape is not None else given[:1]:
        with pytest.raises(ValueError, match=f"`{name}` must be a shape with"):
            layer.build(*shapes)


OF_OTHER_BANKS = {
    "mixed": (SoftmaxGate(), MoE, {}),
    "dispatched": (TopKGate(2), MoE, {"per_example": True, "dispatch": True}),
    "with a capacity": (TopKGate(2), MoE, {"per_example": True, "dispatch": 1.5}),
    "side by side": (ChosenGate(2), MoE, {"side_by_side": True}),
    "of tasks": (SoftmaxGate(num_gates=2), MMoE, {"tasks": 2}),
    "merged": (SoftmaxGate(), SmearExperts, {}),
    "merged by layer": (SoftmaxGate(num_gates=1), SmearExperts, {"per_layer": True}),
    "attentive": (AttentiveGate(), AttentiveMoE, {"per_example": True}),
    # With an expert of each task, its gates have six.
    "with own experts": (SoftmaxGate(num_gates=2), CGC, {"tasks": 2}),
}


@pytest.mark.parametrize("num_experts", [3, 6])
@pytest.mark.parametrize("case", OF_OTHER_BANKS)
def test_a_gate_that_was_built_for_other_experts_is_refused(case, num_experts):
    gate, layer, settings = OF_OTHER_BANKS[case]
    gate, x = gate.unbuilt_copy(), numbers((3, 2))
    first = x if layer is SmearExperts or settings.get("per_example") else None
    hidden = {"hidden": numbers((3, 5, 2))} if layer is AttentiveMoE else {}
    gate(numbers((3, 5, 4)), first, **hidden)
    units = [4] if layer is not AttentiveMoE else [2, 4]
    refusing = layer(DenseExperts(num_experts, units), gate, **settings)
    count = num_experts + (layer is CGC)
    with pytest.raises(ValueError, match=rf"built for 5 experts\. Received: {count}\."):
        refusing(x)


def test_a_shared_gate_that_was_built_for_other_experts_is_refused():
    shared = SoftmaxGate()
    shared(numbers((3, 5, 4)))
    cgc = CGC(DenseExperts(2, [4]), SoftmaxGate(), 2, shared_gate=shared)
    with pytest.raises(ValueError, match=r"built for 5 experts\. Received: 4\."):
        cgc(numbers((3, 2)))


class Told(keras.Layer):
    """Passes inputs on, and notes whether it was called in training."""

    def call(self, inputs, training=None):
        self.training = training
        return inputs


class Looks(keras.Layer):
    """Calls a layer in training or not, and asks it for weights then."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs, training=None):
        self.layer(inputs, training=training)
        during = self.layer.routing_network.training
        self.layer.expert_weights(inputs)
        return during


@pytest.mark.every_backend
def test_weights_are_those_of_inference_also_in_a_training_call():
    layer = MoE(DenseExperts(2, [4]), SoftmaxGate(), True, Told())
    x = numbers((3, 2))
    layer.build(x.shape)
    for training in (True, False):
        assert Looks(layer)(x, training=training) is training
        assert layer.routing_network.training is False
    experts = DenseExperts(2, [8, 4], dropout=0.5)
    layer = AttentiveMoE(experts, AttentiveGate(), per_example=True)
    layer(x)

    class Weights(keras.Layer):
        def call(self, inputs, training=None):
            return layer.expert_weights(inputs)

    assert_close(Weights()(x, training=True), layer.expert_weights(x))


def test_a_gate_whose_regularizer_would_have_no_effect_is_refused():
    gate, bank = SoftmaxGate(activity_regularizer="l2"), DenseExperts(2, [4])
    assert gate(numbers((3, 2, 4)), training=True).shape == (3, 4)
    assert len(gate.losses) == 1
    gate = gate.unbuilt_copy()
    for layer in (
        MoE(bank, gate),
        SmearExperts(bank, gate),
        CGC(bank, SoftmaxGate(), 2, shared_gate=gate),
    ):
        with pytest.raises(ValueError, match=r"no effect.*L2.*`weights_regularizer`"):
            layer(numbers((3, 2)))


@pytest.mark.every_backend
@pytest.mark.parametrize(
    ("layer", "passes"),
    [
        # One choice per sequence: dense experts keep its axes, others may not.
        (lambda: MoE(DenseExperts(2, [4]), SoftmaxGate()), True),
        (lambda: MoE(Experts(keras.layers.Dense(4), 2), SoftmaxGate()), False),
        (lambda: MoE(DenseExperts(2, [4]), SoftmaxGate(num_gates=3)), False),
        # Of tokens, the mask's axes come first, whatever follows.
        (lambda: MoE(DenseExperts(2, [4]), SoftmaxGate(), True), True),
        (lambda: MoE(Experts(keras.layers.Dense(4), 2), SoftmaxGate(), True), True),
        (lambda: MoE(DenseExperts(2, [4]), SoftmaxGate(num_gates=3), True), True),
        (lambda: MMoE(DenseExperts(2, [4]), SoftmaxGate(), ["a", "b"], True), True),
        (lambda: SmearExperts(DenseExperts(2, [4]), SoftmaxGate()), True),
    ],
)
def test_a_mask_is_passed_on_where_the_outputs_have_its_axes(layer, passes):
    masked = keras.layers.Masking()(
        np.pad(numbers((2, 2, 3)), [(0, 0), (0, 1), (0, 0)])
    )
    layer = layer()
    wanted = [[True, True, False]] * 2
    for output in keras.tree.flatten(layer(masked)):
        mask = mask_of(output)
        assert (mask is not None) == passes
        assert not passes or numpy(mask).tolist() == wanted
    assert {*keras.tree.flatten(layer.compute_mask(masked))} == {None}


@pytest.mark.every_backend
@pytest.mark.backends("torch", reason="Others count once.")
@pytest.mark.parametrize("gate", [DSelectKGate(2), TopKGate(2, noise=True, seed=0)])
def test_a_gate_in_a_rematerialized_layer_counts_and_draws_once(gate):
    def trained(mode):
        keras.utils.set_random_seed(1)
        with keras.RematScope(mode=mode):
            layer = MoE(DenseExperts(4, [2]), gate.unbuilt_copy(), per_example=True)
        model = model_of(layer, 3)
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(numbers((12, 3)), numbers((12, 2)), batch_size=4, verbose=0)
        assert int(layer.gate.step) == 3
        return numpy(model(numbers((12, 3))))

    wanted = trained(None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_close(trained("full"), wanted, rtol=1e-5, atol=1e-6)
    assert any("leaves out layers with gates" in str(each.message) for each in caught)


@pytest.mark.every_backend
@pytest.mark.backends("torch", reason="Others count once.")
@pytest.mark.filterwarnings("ignore:On torch, a `keras.RematScope` leaves out")
def test_a_model_that_is_rematerialized_with_its_gates_cannot_be_trained():
    with keras.RematScope(mode="full"):
        layer = MoE(DenseExperts(4, [2]), DSelectKGate(2))
        model = model_of(layer, 3)
    x, y = numbers((4, 3)), numbers((4, 2))
    assert model.predict(x, verbose=0).shape == (4, 2)
    model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match=r"again in the backward .* outside of the"):
        model.fit(x, y, verbose=0)


@pytest.mark.backend_independent
def test_a_layer_that_is_made_frozen_freezes_its_parts():
    gate = TopKGate(1, bias_rate=0.1)
    layer = MoE(DenseExperts(4, [2]), gate, per_example=True, trainable=False)
    before = [numpy(each) for each in (layer(numbers((8, 3))), *layer.weights)][1:]
    layer(numbers((8, 3)), training=True)
    assert not any(each.trainable for each in (layer, layer.gate, layer.experts))
    for weight, value in zip(layer.weights, before, strict=True):
        if weight is not layer.gate.step:
            np.testing.assert_array_equal(numpy(weight), value)


class Cell(keras.layers.Layer):
    """A cell of `keras.layers.RNN` whose next state is a mixture."""

    state_size = output_size = 5

    def __init__(self, gate):
        super().__init__()
        self.moe = MoE(DenseExperts(4, [5]), gate, per_example=True)

    def build(self, shape):
        self.moe.build((shape[0], shape[-1] + 5))
        self.built = True

    def call(self, inputs, states, training=None):
        x = ops.concatenate([inputs, states[0]], axis=-1)
        state = self.moe(x, training=training)
        return state, [state]


@pytest.mark.every_backend
@pytest.mark.traced
def test_a_gate_in_an_unrolled_rnn_adds_its_penalties_at_every_time_step():
    gate = TopKGate(2, z_reg=0.5, kernel_initializer="zeros")
    model = model_of(keras.layers.RNN(Cell(gate), unroll=True), 3, 4)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = numbers((8, 3, 4))
    loss = model.train_on_batch(x, model.predict(x, verbose=0))
    # The squared logarithm of the sum of four exponentials of 0, three times.
    assert_close(loss, 3 * 0.5 * np.log(4) ** 2, rtol=1e-5)
    assert int(gate.step) == 3
