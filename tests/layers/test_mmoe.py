"""Several tasks share a bank of experts, and mix it with a gate for each."""

import keras
import numpy as np
import pytest
from checks import assert_equal
from helpers import numbers, numpy, refusals, weight_gradients
from keras import layers, ops

from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    Experts,
    MMoE,
    MoE,
    SmearExperts,
    SoftmaxGate,
    Task,
)

X = numbers((2, 3))


def mmoe(tasks=2, num_gates=None, **kwargs):
    gate = DSelectKGate(2, num_gates=num_gates)
    return MMoE(DenseExperts(4, [2]), gate, tasks, **kwargs)


def test_outputs_are_a_list_a_dict_or_one_tensor():
    bank, gate = DenseExperts(4, [2]), SoftmaxGate(num_gates=2)
    stacked = numpy(MMoE(bank, gate, 2, stacked=True)(X))
    assert stacked.shape == (2, 2, 2)
    assert_equal(MoE(bank, gate)(X), stacked)
    assert_equal(MMoE(bank, gate, 2)(X), [stacked[:, 0], stacked[:, 1]])
    named = MMoE(bank, gate, ["b", "a"])(X)
    assert_equal(named, {"b": stacked[:, 0], "a": stacked[:, 1]})
    layer = MMoE(bank, gate, [Task("b"), Task("a", "binary")])
    assert_equal(layer(X), named)
    assert layer.get_config()["tasks"] == ["b", "a"]


@pytest.mark.backend_independent
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.array])
def test_a_number_of_tasks_of_numpy_is_a_number(kind):
    layer = mmoe(kind(2))
    assert isinstance(layer(X), list)
    assert type(layer.get_config()["tasks"]) is int


@pytest.mark.backends("jax", reason="Others slice in place.")
def test_the_gradient_of_many_outputs_adds_no_whole_tensors():
    import jax

    for layer, x in (
        (mmoe(6), X),
        (SmearExperts(DenseExperts(3, [4, 4]), SoftmaxGate(), per_layer=True), X),
        (SmearExperts(Experts(layers.Dense(4), 3), SoftmaxGate(num_gates=6)), X),
    ):
        layer.build(x.shape)

        def loss(values, layer=layer, x=x):
            pairs = [*zip(layer.trainable_variables, values, strict=True)]
            with keras.StatelessScope(pairs):
                return sum(ops.sum(each) for each in keras.tree.flatten(layer(x)))

        values = [variable.value for variable in layer.trainable_variables]
        # The gradient of a slice is a whole tensor of zeros around it.
        assert "pad[" not in str(jax.make_jaxpr(jax.grad(loss))(values))


def test_each_task_has_a_gate_of_its_own():
    layer = mmoe(["a", "b"])
    layer(X)
    gradients = weight_gradients(layer.gate, lambda: ops.sum(layer(X)["b"]))
    for gradient in gradients:
        assert np.abs(gradient[0]).max() == 0
    assert np.abs(gradients[-1][1]).max() > 0


@pytest.mark.backend_independent
def test_expert_weights_are_those_of_the_gates_which_may_be_one_for_all():
    layer = mmoe(3, num_gates=1)
    assert_equal(layer(X), [numpy(MoE(layer.experts, layer.gate)(X))[:, 0]] * 3)
    assert layer.expert_weights().shape == (1, 4)
    static, layer = mmoe(), mmoe(per_example=True)
    static(X), layer(X)
    assert static.expert_weights().shape == (2, 4)
    assert layer.expert_weights(X).shape == (2, 2, 4)
    with pytest.raises(ValueError, match="is per-example: pass the inputs"):
        layer.expert_weights()


test_tasks_that_cannot_be_are_refused = refusals(
    (mmoe, "one or more `Task` or unique names", [], ["a", "a"], [1, "a"], [None]),
    (mmoe, "`tasks` must be a positive integer", 0, 1.5, None),
    (mmoe, r"=3 is needed .* num_gates=2\. Pass a new", (3, 2)),
)
