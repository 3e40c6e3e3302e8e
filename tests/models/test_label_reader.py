"""Labels are read as the tasks say."""

import numpy as np
import pytest
from checks import assert_close
from helpers import numpy

from dselectk_keras import Task
from dselectk_keras.models.label_reader import in_order, make_readers

NAN = np.nan
Y = np.array([[1.0, NAN, 2.0], [3.0, 1.0, NAN]], "float32")
PREDICTIONS = np.array([[0.0, NAN, 4.0], [1.0, 0.25, NAN]], "float32")
TASKS = [Task("first"), Task("click", "binary"), Task("last")]


def test_similar_tasks_are_read_together_and_missing_labels_have_no_weight():
    first, click = make_readers(TASKS)
    assert first.indices.tolist() == [0, 2]
    read = first.read(Y, first.predictions(PREDICTIONS))
    assert numpy(read.weights).tolist() == [[1, 1], [1, 0]]
    assert numpy(read.labels)[..., 0].tolist() == [[1, 2], [3, 0]]
    assert numpy(read.counts).tolist() == numpy(read.amounts).tolist() == [2, 1]
    # (1 - 0)² + (3 - 1)², and (2 - 4)².
    assert numpy(first.sum_losses(read)).tolist() == [5, 4]
    losses = numpy(click.sum_losses(click.read(Y, click.predictions(PREDICTIONS))))
    assert_close(losses, [np.log(4)], rtol=1e-6)


def test_sample_weights_are_summed_and_labels_of_weight_zero_do_not_count():
    reader, _ = make_readers(TASKS)
    weights = np.array([[2.0, 1.0, 0.0], [0.5, 1.0, 1.0]], "float32")
    read = reader.read(Y, reader.predictions(PREDICTIONS), weights)
    assert numpy(read.amounts).tolist() == [2.5, 0]
    assert numpy(read.counts).tolist() == [2, 0]
    assert numpy(reader.sum_losses(read)).tolist() == [4, 0]


@pytest.mark.parametrize("label", [2.0, 0.5, np.inf])
def test_an_impossible_class_makes_the_loss_nan(label):
    (reader,) = make_readers([Task("kind", "multiclass", num_classes=2)])
    read = reader.read(np.array([[label], [-1.0]]), np.full((2, 1, 2), 0.5, "float32"))
    assert np.isnan(numpy(reader.sum_losses(read))).all()
    assert np.isnan(numpy(read.weights)).ravel().tolist() == [True, False]


def test_numbers_of_groups_are_joined_in_the_order_of_the_tasks():
    parts = [np.array([0.0, 2.0]), np.array([1.0])]
    assert numpy(in_order(make_readers(TASKS), parts)).tolist() == [0, 1, 2]
    # The groups have the tasks 0 and 3, 1, and 2: 0, 3, 1, 2 is not its own inverse.
    tasks = [*TASKS[:2], Task("kind", "multiclass", num_classes=2), TASKS[2]]
    parts = [np.array([0.0, 3.0]), np.array([1.0]), np.array([2.0])]
    assert numpy(in_order(make_readers(tasks), parts)).tolist() == [0, 1, 2, 3]
