"""Several tasks share a bank of experts, and mix it with a gate for each."""

import numpy as np
import pytest
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import DenseExperts, DSelectKGate, MMoE, MoE, SoftmaxGate

X = numbers((2, 3))


def mmoe(tasks=2, num_gates=None, **kwargs):
    gate = DSelectKGate(2, num_gates=num_gates)
    return MMoE(DenseExperts(4, [2]), gate, tasks, **kwargs)


def test_outputs_are_a_list_a_dict_or_one_tensor():
    bank, gate = DenseExperts(4, [2]), SoftmaxGate(num_gates=2)
    mixed = MoE(bank, gate)
    stacked = numpy(MMoE(bank, gate, 2, stacked=True)(X))
    np.testing.assert_array_equal(stacked, numpy(mixed(X)))
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


@pytest.mark.parametrize("tasks", [[], ["a", "a"]])
def test_task_names_must_be_there_and_differ(tasks):
    with pytest.raises(ValueError, match="one or more unique names"):
        mmoe(tasks)


@pytest.mark.parametrize("tasks", [0, 1.5, None])
def test_tasks_must_be_names_or_a_number(tasks):
    with pytest.raises(ValueError, match="`tasks` must be a positive integer"):
        mmoe(tasks)


@pytest.mark.backend_independent
@pytest.mark.parametrize("tasks", [[1, "a"], [None], ["a", "a"], []])
def test_tasks_have_unique_names(tasks):
    with pytest.raises(ValueError, match="a list of one or more unique names"):
        mmoe(tasks)


def test_another_number_of_gates_is_refused():
    with pytest.raises(ValueError, match=r"=3 is needed .* num_gates=2\. Pass a new"):
        mmoe(3, num_gates=2)
