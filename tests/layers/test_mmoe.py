"""Several tasks share a bank of experts, and mix it with a gate for each."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy, value_and_gradients
from keras import layers, ops

from dselectk_keras import DenseExperts, DSelectKGate, MMoE, MoE, SoftmaxGate

X, V = numbers((2, 3)), numbers((2, 5), seed=1)


def mmoe(tasks=2, num_gates=None, **kwargs):
    gate = DSelectKGate(2, num_gates=num_gates)
    return MMoE(DenseExperts(4, [2]), gate, tasks, **kwargs)


@pytest.mark.parametrize("mode", ["static", "per_example", "routed"])
def test_equals_the_experts_combined_by_hand(mode):
    layer = mmoe(3, per_example=mode != "static")
    inputs = (X, V) if mode == "routed" else X
    layer(inputs)
    gate = layer.gate
    gate.set_weights([numbers(w.shape, seed=2) for w in gate.weights])
    routing = {"static": (), "per_example": (X,), "routed": (V,)}[mode]
    weights = np.broadcast_to(numpy(gate.expert_weights(*routing)), (2, 3, 4))
    expected = np.einsum("btn,bnh->tbh", weights, numpy(layer.experts(X)))
    outputs = layer(inputs)
    assert isinstance(outputs, list)
    for output, task in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(numpy(output), task, rtol=1e-5, atol=1e-6)


def test_outputs_are_a_list_a_dict_or_one_tensor():
    bank, gate = DenseExperts(4, [2]), SoftmaxGate(num_gates=2)
    stacked = numpy(MMoE(bank, gate, 2, stacked=True)(X))
    listed = MMoE(bank, gate, 2)(X)
    named = MMoE(bank, gate, ["b", "a"])(X)
    assert stacked.shape == (2, 2, 2)
    assert sorted(named) == ["a", "b"]
    for t, (output, name) in enumerate(zip(listed, ["b", "a"], strict=True)):
        np.testing.assert_array_equal(numpy(output), stacked[:, t])
        np.testing.assert_array_equal(numpy(named[name]), stacked[:, t])


def test_each_task_has_a_gate_of_its_own():
    layer = mmoe(["a", "b"])
    layer(X)
    _, gradients = value_and_gradients(
        lambda: [ops.sum(layer(X)["b"])], layer.gate.trainable_variables
    )
    for gradient in gradients:
        assert np.abs(gradient[0]).max() == 0
    assert np.abs(gradients[-1][1]).max() > 0


def test_one_gate_for_all_tasks_gives_them_the_same_mixture():
    layer = mmoe(3, num_gates=1)
    outputs = [numpy(output) for output in layer(X)]
    assert len(outputs) == 3
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])
    single = MoE(layer.experts, layer.gate)
    np.testing.assert_array_equal(outputs[0], numpy(single(X))[:, 0])
    assert layer.expert_weights().shape == (1, 4)


def test_expert_weights_are_those_of_the_gates():
    static, layer = mmoe(), mmoe(per_example=True)
    static(X), layer(X)
    assert static.expert_weights().shape == (2, 4)
    assert layer.expert_weights(X).shape == (2, 2, 4)
    with pytest.raises(ValueError, match="is per-example: pass the inputs"):
        layer.expert_weights()


@pytest.mark.traced
def test_trains_inside_functional_and_subclassed_models():
    inputs = keras.Input((3,))
    named = mmoe(["a", "b"])(layers.Dense(3)(inputs))
    functional = keras.Model(
        inputs, {name: layers.Dense(1, name=name)(y) for name, y in named.items()}
    )

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = functional
            self.mmoe = mmoe(2, per_example=True)

        def call(self, inputs, training=None):
            first, second = self.mmoe(inputs, training=training)
            inner = self.inner(inputs, training=training)
            return {"a": inner["a"] + first[:, :1], "b": inner["b"] * second[:, :1]}

    y = {"a": np.ones((2, 1)), "b": np.zeros((2, 1))}
    for model in (functional, Subclassed()):
        model.compile("sgd", {"a": "mse", "b": "mse"})
        log = model.fit(X, y, epochs=2, verbose=0)
        assert np.isfinite(log.history["loss"]).all()


def test_the_config_rebuilds_the_layer():
    layer = mmoe(["a", "b"], per_example=True, stacked=True, name="mine")
    rebuilt = MMoE.from_config(layer.get_config())
    assert rebuilt.get_config() == layer.get_config()
    assert rebuilt.gate.num_gates == 2


@pytest.mark.parametrize("tasks", [[], ["a", "a"]])
def test_task_names_must_be_there_and_differ(tasks):
    with pytest.raises(ValueError, match="one or more unique names"):
        mmoe(tasks)


@pytest.mark.parametrize("tasks", [0, 1.5, None])
def test_tasks_must_be_names_or_a_number(tasks):
    with pytest.raises(ValueError, match="`tasks` must be a positive integer"):
        mmoe(tasks)


def test_another_number_of_gates_is_refused():
    with pytest.raises(ValueError, match=r"=3 is needed .* num_gates=2\. Pass a new"):
        mmoe(3, num_gates=2)
    gate = SoftmaxGate()
    gate.build((None, 4))
    with pytest.raises(ValueError, match="num_gates=None, built already"):
        MMoE(DenseExperts(4, [2]), gate, 2)


def test_unknown_things_and_stray_routing_inputs_are_refused():
    with pytest.raises(ValueError, match="`experts` must be a bank"):
        MMoE("dense", SoftmaxGate(), 2)
    with pytest.raises(ValueError, match="`gate` must be a gate"):
        MMoE(DenseExperts(4, [2]), layers.Dense(4), 2)
    with pytest.raises(ValueError, match="takes no routing inputs"):
        mmoe()((X, V))
    with pytest.raises(ValueError, match=r"stands for two arguments.*a tuple of 3"):
        mmoe(per_example=True)((X, V, V))
