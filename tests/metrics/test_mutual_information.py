"""What the chosen expert tells about the class."""

import math

import numpy as np
import pytest
from checks import assert_equal
from helpers import refusals

from dselectk_keras.metrics import MutualInformation


def information(experts, labels, num_experts=4, num_classes=4, **kwargs):
    weight = kwargs.pop("sample_weight", None)
    metric = MutualInformation(num_experts, num_classes, **kwargs)
    return float(metric(labels, np.eye(num_experts)[experts], weight))


def entropy(indices):
    shares = np.unique(indices, return_counts=True)[1] / len(indices)
    return -(shares * np.log2(shares)).sum()


@pytest.mark.parametrize("base", [2, 4, math.e])
def test_by_hand(base):
    # Joint counts, classes by experts: [[2, 1], [0, 1]].
    found = information([0, 0, 1, 1], [0, 0, 0, 1], base=base)
    nats = 0.5 * math.log(0.5 / 0.375)
    nats += 0.25 * math.log(0.25 / 0.375) + 0.25 * math.log(0.25 / 0.125)
    assert found == pytest.approx(nats / math.log(base), rel=1e-6)


def test_tokens_with_a_class_each_count_as_examples():
    experts, labels = np.array([[0, 1, 1], [2, 2, 3]]), np.array([[0, 1, 2], [2, 2, 3]])
    weight = np.array([[1.0, 2.0, 0.0], [1.0, 0.5, 3.0]])
    for weights, flat in ((None, None), (weight, weight.ravel())):
        found = information(experts, labels, sample_weight=weights)
        wanted = information(experts.ravel(), labels.ravel(), sample_weight=flat)
        assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("experts", "labels"),
    [([0, 1, 0, 1], [0, 0, 1, 1]), ([2] * 4, [0, 1, 2, 3]), ([0, 1, 2, 3], [3] * 4)],
)
def test_independent_choices_tell_nothing(experts, labels):
    assert information(experts, labels) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_bounds(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=16)
    experts = np.where(rng.random(16) < seed / 4, labels, rng.integers(4, size=16))
    found = information(experts, labels)
    assert 0 <= found <= min(entropy(experts), entropy(labels)) + 1e-6
    wanted = entropy(experts) + entropy(labels) - entropy(4 * labels + experts)
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_never_below_zero_by_rounding():
    rng = np.random.default_rng(0)
    labels, experts = np.indices((4, 4)).reshape(2, -1)
    for _ in range(20):
        amounts = np.outer(rng.random(4), rng.random(4)).reshape(-1)
        assert 0 <= information(experts, labels, sample_weight=amounts) < 1e-6


def test_batches_add_up_to_more_than_their_mean():
    metric = MutualInformation(4, 4)
    for index in (0, 1):
        metric.update_state([index] * 4, np.eye(4)[[index] * 4])
    assert float(metric.result()) == 1.0


def test_the_largest_weight_chooses_and_the_first_of_several():
    metric = MutualInformation(4, 4)
    weights = np.array([[2, 4, 4, 0], [4, 2, 0, 4], [3, 3, 3, 3], [0, 1, 2, 3]])
    metric.update_state([0, 1, 2, 3], weights)
    assert_equal(metric.total, np.eye(4)[[1, 0, 0, 3]])


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_labels_of_any_dtype_in_a_row_or_column(dtype):
    labels = np.array([0, 1, 2, 3]).astype(dtype)
    assert information([0, 1, 2, 3], labels) == 2.0
    assert information([0, 1, 2, 3], labels[:, None]) == 2.0


def test_labels_out_of_range_are_left_out_and_sample_weights_share_the_counts():
    assert information([0, 1, 0, 1], [0, 1, -1, 4]) == 1.0
    assert information([0, 0, 1, 1], [0, 10**6, 1, -(10**6)]) == 1.0
    found = information([0, 0, 1, 1], [0, 1, 0, 1], sample_weight=[1, 0, 0, 3])
    assert found == pytest.approx(2 - 0.75 * math.log2(3))
    assert information([2, 3, 0, 1], [0, 1, 2, 3]) == 2.0
    assert information([2, 3, 0, 1], [0, 1, 2, 3], base=4) == 1.0


def update(labels, weights):
    MutualInformation(3, 2).update_state(np.zeros(labels, int), np.ones(weights))


test_what_cannot_be_is_refused = refusals(
    (update, r"`weights` .*\(batch, n\) with n=3 .*shape: \(4, 2\)", (4, (4, 2))),
    (update, r"`weights` must have the shape \(batch, n\) with", (4, (4, 1, 3))),
    (update, r"`labels` .*\(batch, 1\).*batch=4 .*sh.*: \(4, 3\)", ((4, 3), (4, 3))),
    (update, r"`labels` must have the shape \(batch,\)", (5, (4, 3))),
    (update, "Pass one number per example", ((), (4, 3))),
    (MutualInformation, "`num_experts` must be a positive integer", (0, 2)),
    (MutualInformation, "`num_classes` must be a positive integer", (3, 2.5)),
    (MutualInformation, "`base` must be a finite number", (3, 2, 1)),
)
