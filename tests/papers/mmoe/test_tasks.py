"""Tasks are cut out and renamed."""

import numpy as np

from experiments import stand_in
from papers.mmoe._tasks import only_tasks


def test_only_tasks_cuts_and_renames():
    data = stand_in((3,), {"a": "binary", "b": "regression", "c": 5}, size=7)
    cut = only_tasks(data, {"first": "c", "second": "a", "third": "c"})
    assert cut.task_names == ("first", "second", "third")
    assert cut.task_kinds == ("multiclass", "binary", "multiclass")
    assert cut.num_classes == (5, None, 5)
    labels = np.asarray(data.test.y)
    np.testing.assert_array_equal(cut.test.y, labels[:, [2, 0, 2]])
    assert cut.train.x is data.train.x
