"""Which experts the examples of each class choose."""

import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numpy

from dselectk_keras.metrics import SelectionTable

LABELS = [0, 1, 1, 1]
WEIGHTS = np.array(
    [[0.6, 0.4, 0, 0], [0.5, 0.5, 0, 0], [0, 1, 0, 0], [0.2, 0.4, 0.2, 0.2]]
)
COUNTS = [[1, 0, 0, 0], [1, 2, 0, 0], [0] * 4, [0] * 4]


@pytest.mark.parametrize(
    ("normalize", "wanted"),
    [
        (None, COUNTS),
        ("classes", [[1, 0, 0, 0], [1 / 3, 2 / 3, 0, 0], [0] * 4, [0] * 4]),
        ("experts", [[1 / 2, 0, 0, 0], [1 / 2, 1, 0, 0], [0] * 4, [0] * 4]),
    ],
)
def test_by_hand_and_normalize_is_one_of_three(normalize, wanted):
    assert_close(SelectionTable(4, 4, normalize)(LABELS, WEIGHTS), wanted, rtol=1e-6)
    with pytest.raises(ValueError, match=r"`normalize` must be one of None, 'cl"):
        SelectionTable(2, 2, normalize="rows")


def test_a_result_is_not_changed_by_later_batches():
    metric = SelectionTable(4, 4)
    first = metric(LABELS, WEIGHTS)
    metric.update_state(LABELS, WEIGHTS)
    assert numpy(first).sum() == 4
    assert numpy(metric.result()).sum() == 8


def test_sample_weights_are_summed_to_the_last_bit():
    weight = np.float32([0.1, 1 / 3, 0.7, 1e-3])
    table = numpy(SelectionTable(4, 4)(LABELS, WEIGHTS, weight))
    wanted = [[weight[0], 0], [weight[1], weight[2] + weight[3]]]
    assert_equal(table[:2, :2], np.float32(wanted))
    assert not table[2:].any()


# As an integer NaN is 0, or the smallest of all, by the backend.
@pytest.mark.parametrize("labels", [[-1, 0, 4, 3], [np.nan, 0.0, -0.5, 3.0]])
def test_labels_out_of_range_and_missing_ones_are_left_out(labels):
    table = SelectionTable(4, 4)(labels, np.eye(4)[[0, 0, 2, 3]])
    assert_equal(table, np.diag([1, 0, 0, 1]))
