"""The tests change TensorFlow and Keras to save time, and no result changes."""

import ast
import pathlib
import re

import keras
import numpy as np
import pytest
from conftest import patched
from helpers import numbers, numpy

pytestmark = pytest.mark.backend_independent
on_tensorflow = pytest.mark.backends("tensorflow", reason="It is TensorFlow's part.")
BACKEND, X = keras.backend.backend(), numbers((10, 3))
sliced = pytest.mark.skipif(
    not patched("sliced_batches"), reason="TensorFlow makes the batches."
)


def after_each_seed(draw, times=2):
    """Results of some calls after each of two settings of the same seed."""
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        found.append([numpy(draw()) for _ in range(times)])
    return np.array(found)


@on_tensorflow
@pytest.mark.parametrize("state", [False, True])
def test_operations_start_anew_with_the_seed(state):
    import tensorflow as tf

    normal = tf.random.normal if state else keras.random.normal
    first, second = after_each_seed(lambda: normal((3,)))
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()


@on_tensorflow
@sliced
@pytest.mark.parametrize(
    "arrays",
    [
        (X,),
        ((X.astype("float64"), X > 0), {"a": np.arange(10), "b": np.float16(X)}),
        ([X, X[:, 0]], [X, X], np.ones(10)),
        ({"x": X}, None, np.ones(10)),
    ],
    ids=["x", "types", "lists", "no labels"],
)
def test_batches_are_those_of_tensorflow(arrays):
    import tensorflow as tf
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    found, wanted = [], []
    for eager, batches in [(True, found), (False, wanted)]:
        tf.config.run_functions_eagerly(eager)
        data = ArrayDataAdapter(*arrays, batch_size=4, shuffle=False).get_tf_dataset()
        assert isinstance(data, tf.data.Dataset) != eager
        batches.extend(data)
    assert len(found) == len(wanted) == 3
    keras.tree.assert_same_structure(found, wanted)
    for one, other in zip(*map(keras.tree.flatten, (found, wanted)), strict=True):
        if not isinstance(other, tf.experimental.Optional):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_no_test_skips_by_the_backend_but_by_the_marker():
    # Its skips are counted, and it is known that another backend runs the test.
    found = [
        path.name
        for path in pathlib.Path(__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "pytest.mark.skipif"
        and re.search(r"backend\(\)|BACKEND|ON_", ast.unparse(call.args[0]))
    ]
    assert not found
