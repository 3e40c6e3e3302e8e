"""Settings of a task, and the properties that follow."""

import keras
import numpy as np
import pytest
from helpers import refusals

from dselectk_keras import Task
from dselectk_keras.models.task import as_tasks, group_tasks

pytestmark = pytest.mark.backend_independent


def test_each_kind_has_an_output_and_a_loss():
    tasks = [Task("r"), Task("b", "binary"), Task("m", "multiclass", num_classes=3)]
    assert [task.num_outputs for task in tasks] == [1, 1, 3]
    assert [task.rules.activation for task in tasks] == [None, "sigmoid", "softmax"]
    losses = ["mean_squared_error", "binary_crossentropy"]
    losses.append("sparse_categorical_crossentropy")
    assert [task.loss for task in tasks] == losses


def test_settings_may_be_given_alone_or_as_a_sequence():
    task = Task("a", tower=8, metrics="mse")
    assert (task.tower, task.metrics) == ((8,), ("mse",))
    assert Task("a", tower=[8, 4]).tower == (8, 4)
    assert Task("a", metrics=()).metrics == ()


def test_tasks_are_alike_if_name_and_weight_alone_differ():
    task = Task("a", tower=(4,), loss="mae")
    alike = Task("b", tower=(4,), loss="mae", weight=0.5)
    assert group_tasks([task, alike]) == {"a_b": [0, 1]}
    others = [Task("a", "binary", tower=(4,), loss="mae"), Task("a", tower=(4,))]
    others += [Task("a", tower=(), loss="mae"), Task("a", tower=4, loss="mse")]
    others += [Task("a", tower=(4,), loss="mae", metrics="mse")]
    groups = group_tasks([task, *others, alike])
    assert [*groups.values()] == [[0, 6], *([i] for i in range(1, 6))]


def test_no_group_is_lost_where_names_are_numbers_or_have_no_plain_letters():
    tasks = [Task("1"), Task("点击", "binary"), Task("评分", tower=(2,))]
    assert sorted(group_tasks(tasks).values()) == [[0], [1], [2]]


def test_the_config_rebuilds_the_task_with_settings_that_keras_leaves_out():
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=2)
    topk = keras.metrics.SparseTopKCategoricalAccuracy(2, from_sorted_ids=True)
    metrics = "sparse_categorical_accuracy", topk
    task = Task("a", "multiclass", 3, (4,), loss, metrics, weight=2.0)
    rebuilt = Task.from_config(task.get_config())
    assert rebuilt.get_config() == task.get_config()
    assert rebuilt.loss.ignore_class == 2
    # The predictions are ids of classes, of which the first two count.
    assert float(rebuilt.metrics[1]([1], [[2, 1, 0]])) == 1.0
    assert float(rebuilt.metrics[1]([0], [[2, 1, 0]])) == 0.5
    metrics = (keras.metrics.AUC(name="area"),)
    task = Task("a", "binary", None, (), keras.losses.Huber(0.25), metrics)
    rebuilt = Task.from_config(task.get_config())
    assert isinstance(rebuilt.metrics[0], keras.metrics.AUC)
    # Of an error of 2, Huber's loss is 0.25 * (2 - 0.25 / 2); with delta=1, it is 1.5.
    loss = rebuilt.loss([[0.0]], [[2.0]])
    assert float(loss) == 0.25 * (2 - 0.125)


test_a_task_that_cannot_be_is_refused = refusals(
    *(
        (Task, text, {"name": "a", **arguments})
        for arguments, text in [
            ({"kind": "ordinal"}, "`kind` must be one of 'regression', .*'ordinal'"),
            ({"kind": "multiclass"}, "num_classes=None and kind='multiclass'"),
            ({"num_classes": 3}, "num_classes=3 and kind='regression'"),
            ({"tower": "mean"}, "`tower` must be .*tower='mean'"),
            (
                {"kind": "multiclass", "num_classes": 3, "tower": "sum"},
                "tower='sum' has one output",
            ),
            ({"name": "task"}, "name other than 'task'"),
            ({"name": ""}, "Received: name=''"),
            (
                {"kind": "binary", "loss": keras.losses.BinaryCrossentropy(True)},
                "'a': BinaryCrossentropy with .*'from_logits': True",
            ),
            (
                {"kind": "binary", "metrics": keras.metrics.AUC(from_logits=True)},
                "not logits.*'a': AUC with .*'from_logits': True",
            ),
            (
                {"loss": keras.losses.MeanSquaredError("sum")},
                "averages the losses.*'a'.*'reduction': 'sum'",
            ),
            ({"loss": dict}, "`loss` must be known to `keras.losses`.*dict.*no Loss"),
            ({"metrics": [keras.layers.ReLU]}, "`metrics` must .*ReLU.*no Metric"),
            ({"metrics": "accuracy"}, "Say which accuracy: 'binary_accuracy'"),
        ]
    )
)


def test_names_of_numpy_are_names():
    names = list(np.array(["a", "b"]))
    assert [task.name for task in as_tasks(names)] == ["a", "b"]


def test_a_config_may_leave_out_settings():
    (task,) = as_tasks([{"name": "a", "kind": "binary"}])
    assert task == Task("a", "binary")


test_tasks_are_a_number_or_a_list = refusals(
    (as_tasks, r"a number, or a list of .*tasks='click'", ("click",)),
    (as_tasks, r"unique names.*\['a', 'a'\]", (["a", "a"],)),
    (as_tasks, r"`tasks` must be a positive integer.*0", (0,)),
)
