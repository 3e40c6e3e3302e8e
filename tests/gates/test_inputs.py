"""A gate gets two arguments, of shapes that it can use."""

import keras
import pytest
from helpers import numpy, refusals

from dselectk_keras import SoftmaxGate
from dselectk_keras.gates.inputs import as_arguments, count_experts, count_features

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (("experts",), ("experts",)),
        (("experts", None), ("experts",)),
        (("experts", "x"), ("experts", "x")),
        ((("experts", "x"),), ("experts", "x")),
        ((["experts", "of a list"],), (["experts", "of a list"],)),
    ],
)
def test_a_tuple_stands_for_two_arguments(given, arguments):
    assert as_arguments(*given) == arguments


@pytest.mark.parametrize(
    ("given", "text"),
    [
        # The units of one expert.
        (((8, 4),), r"an axis for their outputs.*\(8, 4\)"),
        # A tuple is experts and routing inputs, not two experts.
        ((((8, 4), (8, 4)),), r"gate\(\[first, second\]\), not a tuple"),
        # The axes of the experts and of the batch are swapped.
        (((4, 8, 2), (8, 3)), r"shape \(4, 8, 2\) and 8 routing inputs"),
        (([(4, 2)], (8, 3)), r"the same number of examples"),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_cannot_be_experts_is_refused(given, text, symbolic):
    def tensor(shape):
        if all(isinstance(size, int) for size in shape):
            return keras.KerasTensor(shape) if symbolic else keras.ops.ones(shape)
        return type(shape)(map(tensor, shape))

    with pytest.raises(ValueError, match=text):
        SoftmaxGate()(*map(tensor, given))


def test_scalar_experts_are_a_list_or_have_an_axis():
    listed = [keras.ops.ones(8), 3 * keras.ops.ones(8)]
    stacked = keras.ops.expand_dims(keras.ops.stack(listed, axis=1), -1)
    gate = SoftmaxGate(kernel_initializer="zeros")
    assert numpy(gate(listed)).tolist() == [2.0] * 8
    assert numpy(gate(stacked)).tolist() == [[2.0]] * 8


@pytest.mark.every_backend
def test_experts_are_those_of_axis_1_or_of_a_list():
    shapes = [(None, 4, 2), [(None, 2), (None, 2), (None, 2)], (8, 1)]
    assert [*map(count_experts, shapes)] == [4, 3, 1]


def test_features_are_those_of_the_last_axis():
    given = [((None,), None), ((None, 5), None), ((8, 5), 3), ((8, 3, 6), 3)]
    assert [count_features(*each) for each in given] == [1, 5, 5, 6]


test_what_is_neither_experts_nor_routing_inputs_is_refused = refusals(
    (as_arguments, r"a tuple of 3\. ", (("a", "b", "c"),)),
    (as_arguments, "a tuple of 2 and also routing inputs", (("experts", "x"), "x")),
    (count_experts, "num_experts known", ((None, None, 2),), ((4,),)),
    (count_experts, r"same shape.*\(None, 2\), \(None, 3\)", [(None, 2), (None, 3)]),
    (count_experts, "at least one expert.*Received shapes: none", []),
    (count_experts, "at least one expert", None),
    (count_features, r"shape \(batch, features\).*\(8, 3, 6\)", ((8, 3, 6), None)),
    (count_features, "Flatten or pool them first", ((8, 2, 3, 6), 3)),
    (count_features, "with features known", ((8, None), None)),
    (count_features, "must be one tensor", ([(8, 5), (8, 5)], None)),
    (count_features, r"3 gates need .*\(batch, 3, features\)", ((8, 2, 6), 3)),
)
