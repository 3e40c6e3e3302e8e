"""A data set holds together or says what does not fit."""

import pickle

import numpy as np
from helpers import refusals

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


def test_groups_and_info_are_empty_by_default_and_survive_pickling():
    data = dataset()
    assert (data.num_tasks, data.groups, data.info) == (2, None, {})
    data = pickle.loads(pickle.dumps(dataset(groups=(0, 1), info={"noise": 0.1})))
    assert data.groups == (0, 1)
    assert data.info == {"noise": 0.1}


def test_inputs_and_labels_may_be_mappings():
    part = Split(
        {"image": np.zeros((4, 8, 8)), "age": np.zeros(4)},
        {"b": np.zeros(4), "a": np.zeros((4, 3))},
    )
    assert dataset(train=part).train.num_samples == 4
    assert split(3).num_samples == 3


def test_a_split_is_the_tuple_that_keras_takes_as_validation_data():
    part = Split(np.ones((3, 2)), np.zeros((3, 1)))
    assert isinstance(part, tuple)
    x, y = part
    assert (x.shape, y.shape) == ((3, 2), (3, 1))


CLASSES = ("multiclass", "binary")


def test_multiclass_tasks_say_how_many_classes_they_have():
    assert dataset().num_classes == (None, None)
    data = dataset(task_kinds=CLASSES, num_classes=(3, None))
    assert data.num_classes == (3, None)


def of(x, y):
    return Split(np.zeros(x), y if isinstance(y, dict) else np.zeros(y))


NUM_CLASSES = "`num_classes` must "
test_what_does_not_fit_is_refused = refusals(
    (dataset, r"`task_names` .*none of them twice", {"task_names": ("a", "a")}),
    (dataset, "`task_names` must be a list or t", {"task_names": (), "task_kinds": ()}),
    (dataset, r"`task_names` must be strings, none .*'a', 1", {"task_names": ("a", 1)}),
    (dataset, "`task_names` must be a list or tuple", {"task_names": "ab"}),
    (dataset, "`task_kinds` must be a list or tuple", {"task_kinds": None}),
    (dataset, "`groups` must be a list or tuple", {"groups": {"a": 0, "b": 1}}),
    (dataset, "`num_classes` must be a list or tuple", {"num_classes": 2}),
    (
        dataset,
        "`task_kinds` must be a list .* one entry",
        {"task_kinds": ("regression",)},
    ),
    (
        dataset,
        "`task_kinds` must be some of .*ranking",
        {"task_kinds": ("regression", "ranking")},
    ),
    (dataset, "`groups` must be a list .* one entry", {"groups": (0, 1, 1)}),
    (
        dataset,
        r"`test` must have .* labels \(samples, 2\)",
        *({"test": of((4, 3), y)} for y in [(4,), (4, 3), (4, 2, 1)]),
    ),
    (
        dataset,
        r"`validation` .* mapping .*Received: \['a'\], and",
        {"validation": of((4, 3), {"a": np.zeros(4)})},
    ),
    (dataset, r"`train` .*lengths \[5, 4\]", {"train": of((5, 3), (4, 2))}),
    (
        dataset,
        r"`train` must be a `Split`.* Received: train=\(",
        {"train": tuple(split())},
    ),
    (
        dataset,
        NUM_CLASSES,
        *(
            {"task_kinds": CLASSES, "num_classes": given}
            for given in (None, (3, 2), (3,), (None, 3))
        ),
    ),
)
