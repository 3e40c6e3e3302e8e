"""Batches cover the data once an epoch, in orders that the seed decides."""

import keras
import numpy as np
import pytest
from checks import assert_equal

from dselectk_keras.batches import Batches
from dselectk_keras.datasets import Split

SPLIT = Split(np.arange(10.0)[:, None], np.arange(10.0)[:, None] * 2)


def epoch(batches):
    xs, ys = zip(*(batches[i] for i in range(batches.num_batches)), strict=True)
    batches.on_epoch_end()
    return np.concatenate(xs)[:, 0], np.concatenate(ys)[:, 0]


@pytest.mark.backend_independent
@pytest.mark.parametrize("batch_size", [1, 10, 64])
def test_an_epoch_has_every_example_once_in_batches_of_any_size(batch_size):
    batches = Batches(SPLIT, batch_size=4)
    assert [len(batches[i][0]) for i in range(batches.num_batches)] == [4, 4, 2]
    x, y = epoch(batches)
    assert_equal(np.sort(x), np.arange(10))
    assert_equal(y, 2 * x)
    assert len(epoch(Batches(SPLIT, batch_size))[0]) == 10


@pytest.mark.backend_independent
def test_labels_of_objects_are_numbers_with_gaps():
    labels = {"a": np.array([1, None, 0], object), "b": np.array(list("xyz"), object)}
    found = Batches((np.ones((3, 1)), labels), 3).data[1]
    assert_equal(found["a"], [1.0, np.nan, 0.0])
    assert found["b"].tolist() == ["x", "y", "z"]


@pytest.mark.backend_independent
def test_every_epoch_has_an_order_of_its_own_and_the_seed_decides_it():
    batches, again, other = (Batches(SPLIT, 4, seed) for seed in (3, 3, 4))
    first, second = epoch(batches)[0], epoch(batches)[0]
    assert not np.array_equal(first, second)
    assert_equal(first, epoch(again)[0])
    assert_equal(second, epoch(again)[0])
    assert not np.array_equal(first, epoch(other)[0])


@pytest.mark.backend_independent
def test_an_epoch_that_has_not_ended_keeps_its_order():
    """Keras may read a batch, and end an epoch, before the first one."""
    batches, again = Batches(SPLIT, 4, 3), Batches(SPLIT, 4, 3)
    batches[0], batches[1]
    batches.on_epoch_end()
    assert_equal(epoch(batches)[0], epoch(again)[0])


@pytest.mark.backend_independent
def test_processes_that_would_not_see_the_next_order_are_refused():
    with pytest.raises(ValueError, match="`use_multiprocessing` must be False"):
        Batches(SPLIT, 4, workers=2, use_multiprocessing=True)
    assert Batches(SPLIT, 4, workers=2).workers == 2


@pytest.mark.backend_independent
def test_a_table_of_labels_would_lose_the_names_of_its_columns():
    pandas = pytest.importorskip("pandas")
    x, table = np.zeros((4, 1)), pandas.DataFrame({"b": np.ones(4), "a": np.zeros(4)})
    with pytest.raises(ValueError, match=r"dicts of arrays .* Pass `dict\(table\)`"):
        Batches((x, table), 2)
    _, labels = Batches((x, dict(table)), 2)[0]
    assert labels["b"].tolist() == [1.0, 1.0]


@pytest.mark.backend_independent
def test_a_table_of_inputs_of_several_kinds_is_no_array():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": np.arange(4.0), "city": ["x", "y"] * 2})
    with pytest.raises(ValueError, match=r"columns of numbers.*`dict\(table\)`"):
        Batches((table, np.ones(4)), 2)
    x, _ = Batches((table[["age"]], np.ones(4)), 4)[0]
    assert sorted(x[:, 0]) == [0, 1, 2, 3]


@pytest.mark.backends("tensorflow", reason="TensorFlow looks up strings.")
def test_keras_reads_batches_of_strings():
    x = np.array(["low", "high"] * 4, object)
    inputs = keras.Input((), dtype="string")
    found = keras.layers.StringLookup(vocabulary=["low", "high"])(inputs)
    model = keras.Model(inputs, keras.layers.Embedding(3, 1, "zeros")(found))
    model.compile("sgd", "mse")
    model.fit(Batches((x, np.where(x == "low", 0.0, 1.0)), 2), epochs=9, verbose=0)
    low, high = (float(model.predict(x[i : i + 1], verbose=0)[0, 0]) for i in (0, 1))
    assert low == 0 < high
