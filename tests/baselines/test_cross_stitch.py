"""Tasks that exchange what their networks give."""

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numbers, numpy, refusals, value_and_gradients
from keras import ops

from dselectk_keras.baselines import CrossStitch


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 5, 4)])
def test_is_the_matrix_times_the_tasks(shape):
    layer, x = CrossStitch(), numbers(shape)
    layer.build(shape)
    layer.set_weights([numbers((3, 3), seed=1)])
    expected = np.einsum("tu,bu...->bt...", numpy(layer.matrix), x)
    assert_close(layer(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("share", "tasks", "expected"),
    [
        (0.1, 2, [[0.9, 0.1], [0.1, 0.9]]),
        (0.5, 3, [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]),
        (0.0, 2, np.eye(2)),
        (0.3, 1, [[1.0]]),
    ],
)
def test_starts_with_a_share_of_the_other_tasks(share, tasks, expected):
    layer = CrossStitch(share)
    layer.build((None, tasks, 4))
    assert_close(layer.matrix, expected, rtol=1e-6)


def test_gradients_reach_the_matrix_and_all_tasks():
    layer, x = CrossStitch(0.0), keras.Variable(numbers((2, 3, 4)))
    layer.build(x.shape)
    _, (by_matrix, by_inputs) = value_and_gradients(
        lambda: [ops.sum(layer(ops.convert_to_tensor(x))[:, 1])], [layer.matrix, x]
    )
    expected = np.zeros((3, 3))
    expected[1] = numpy(x).sum(axis=(0, 2))
    assert_close(by_matrix, expected, rtol=1e-5, atol=1e-6)
    assert_equal(by_inputs[:, 1], 1.0)
    assert_equal(by_inputs[:, [0, 2]], 0.0)


test_what_cannot_be_right_is_refused = refusals(
    (CrossStitch, "Received: initial_share=2", 2),
    (CrossStitch(), r"need inputs \(batch, tasks, ...\) .*\(2, 3", numbers((2, 3))),
)
