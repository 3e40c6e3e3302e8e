"""A data set holds together or says what does not fit."""

import dataclasses
import pickle

import numpy as np
import pytest

from dselectk_keras.datasets import Dataset, Split


def split(samples=4, tasks=2):
    return Split(np.zeros((samples, 3)), np.zeros((samples, tasks)))


def dataset(**changes):
    values = {
        "train": split(),
        "validation": split(),
        "test": split(),
        "task_names": ("a", "b"),
        "task_kinds": ("regression", "binary"),
    }
    return Dataset(**{**values, **changes})


def test_num_tasks_counts_the_names():
    assert dataset().num_tasks == 2


def test_groups_and_info_are_empty_by_default():
    data = dataset()
    assert data.groups is None
    assert data.info == {}


def test_a_dataset_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset().groups = (0, 1)


def test_a_dataset_survives_pickling():
    data = pickle.loads(pickle.dumps(dataset(groups=(0, 1), info={"noise": 0.1})))
    assert data.groups == (0, 1)
    assert data.info == {"noise": 0.1}


def test_inputs_and_labels_may_be_mappings():
    part = Split(
        {"image": np.zeros((4, 8, 8)), "age": np.zeros(4)},
        {"b": np.zeros(4), "a": np.zeros((4, 3))},
    )
    assert dataset(train=part).train.num_samples == 4


def test_task_names_must_differ():
    with pytest.raises(ValueError, match=r"`task_names` .*none of them twice"):
        dataset(task_names=("a", "a"))


def test_there_must_be_a_task():
    with pytest.raises(ValueError, match=r"`task_names` must hold at least one"):
        dataset(task_names=(), task_kinds=())


@pytest.mark.parametrize("value", ["ab", 2, None])
@pytest.mark.parametrize("name", ["task_names", "task_kinds", "groups", "num_classes"])
def test_what_tasks_have_is_a_list(name, value):
    if value is None and name in ("groups", "num_classes"):
        value = {"a": 0, "b": 1}
    with pytest.raises(ValueError, match=rf"`{name}` must be a list or tuple"):
        dataset(**{name: value})


def test_task_names_are_strings():
    with pytest.raises(ValueError, match=r"`task_names` must be strings\. Rec"):
        dataset(task_names=("a", 1))


@pytest.mark.parametrize("kinds", [("regression",), ("regression", "ranking")])
def test_every_task_has_a_known_kind(kinds):
    with pytest.raises(ValueError, match=r"`task_kinds` must hold one of .*multiclass"):
        dataset(task_kinds=kinds)


def test_every_task_has_a_group():
    with pytest.raises(ValueError, match=r"one group for each of the 2 tasks"):
        dataset(groups=(0, 1, 1))


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 1)])
def test_label_columns_are_the_tasks(shape):
    part = Split(np.zeros((4, 3)), np.zeros(shape))
    with pytest.raises(ValueError, match=r"`test.y` must have shape \(samples, 2\)"):
        dataset(test=part)


def test_label_keys_are_the_task_names():
    part = Split(np.zeros((4, 3)), {"a": np.zeros(4)})
    with pytest.raises(ValueError, match=r"`validation.y` .*keys: \('a',\)"):
        dataset(validation=part)


def test_inputs_and_labels_are_as_many():
    part = Split(np.zeros((5, 3)), np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"`train` .*lengths: \[4, 5\]"):
        dataset(train=part)


def test_splits_are_splits():
    with pytest.raises(ValueError, match=r"`train` must be a Split. Received: tuple"):
        dataset(train=(np.zeros((4, 3)), np.zeros((4, 2))))


def test_multiclass_tasks_say_how_many_classes_they_have():
    assert dataset().num_classes == (None, None)
    kinds = ("multiclass", "binary")
    assert dataset(task_kinds=kinds, num_classes=(3, None)).num_classes == (3, None)
    for num_classes in (None, (3, 2), (3,), (None, 3)):
        with pytest.raises(
            ValueError, match=r"`num_classes` must hold a number for ea"
        ):
            dataset(task_kinds=kinds, num_classes=num_classes)


def test_a_split_unpacks_as_inputs_and_labels():
    x, y = Split(np.ones((3, 2)), np.zeros((3, 1)))
    assert x.shape == (3, 2)
    assert y.shape == (3, 1)


def test_a_split_is_the_tuple_that_keras_takes_as_validation_data():
    assert isinstance(Split(np.ones(3), np.ones(3)), tuple)


def test_num_samples_counts_examples_of_arrays_and_mappings():
    assert Split(np.ones((3, 2)), np.zeros((3, 1))).num_samples == 3
    assert Split({"a": np.ones((5, 2))}, np.zeros((5, 1))).num_samples == 5
