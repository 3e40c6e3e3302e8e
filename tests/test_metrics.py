"""Metrics of gates: by hand, over batches, in half precision, and refusals."""

import json
import math
import re
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import dtype_policy, floatx, numpy, refusals
from keras import ops

from dselectk_keras import metrics
from dselectk_keras.metrics import (
    MutualInformation,
    SampleEntropy,
    SelectionTable,
    UtilizationEntropy,
    active_experts,
    jaccard_index,
)

# All Keras metrics.

# Few shapes, and the same in all tests of metrics: JAX compiles for each.
BATCH, GATES, EXPERTS, CLASSES = 4, 2, 4, 4


def sparse(*shape):
    """Points on the simplex with some zeros."""
    weights = np.random.default_rng(3).dirichlet(np.ones(shape[-1]), shape[:-1])
    weights[weights < 0.1] = 0.0
    return (weights / weights.sum(-1, keepdims=True)).astype("float32")


LABELS = np.array([0, 1, 1, 3])
ROWS, OF_GATES = sparse(BATCH, EXPERTS), sparse(BATCH, GATES, EXPERTS)
CASES = {
    "mutual_information": (
        partial(MutualInformation, EXPERTS, CLASSES, base=3),
        (LABELS, ROWS),
    ),
    "sample_entropy": (partial(SampleEntropy, base=3), (OF_GATES,)),
    "selection_table": (
        partial(SelectionTable, EXPERTS, CLASSES, normalize="classes"),
        (LABELS, ROWS),
    ),
    "utilization_entropy": (
        partial(UtilizationEntropy, EXPERTS, base=3),
        (OF_GATES,),
    ),
}
every_metric = pytest.mark.parametrize(("make", "data"), CASES.values(), ids=CASES)


def value_of(make, data, **kwargs):
    return numpy(make()(*data, **kwargs))


def rows(data, indices):
    return tuple(array[indices] for array in data)


def compiled(metric, data, weight):
    """A function that updates the metric from a batch, in a compiled program."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        program = jax.jit(metric.stateless_update_state)

        def update(*batch):
            state = program([variable.value for variable in metric.variables], *batch)
            for variable, value in zip(metric.variables, state, strict=True):
                variable.assign(value)

        return update
    if backend == "tensorflow":
        import tensorflow as tf

        # One program for batches of any size.
        signature = [
            tf.TensorSpec((None, *array.shape[1:]), array.dtype)
            for array in (*data, weight)
        ]
        return tf.function(metric.update_state, input_signature=signature)
    return metric.update_state


def test_every_streaming_metric_is_here():
    public = [getattr(metrics, name) for name in metrics.__all__]
    classes = {each for each in public if isinstance(each, type)}
    found = {each for each in classes if issubclass(each, keras.metrics.Metric)}
    assert {type(make()) for make, _ in CASES.values()} == found


@pytest.mark.traced
@every_metric
def test_compiled_batches_of_any_size_give_what_one_batch_gives(make, data):
    metric = make()
    weight = np.array([0.5, 2.0, 1.0, 1.5], "float32")
    update = compiled(metric, data, weight)
    for indices in ([0], [1, 2, 3]):
        update(*rows(data, indices), weight[indices])
    wanted = value_of(make, data, sample_weight=weight)
    assert_close(metric.result(), wanted, rtol=1e-5)
    assert wanted.max() > 0


@every_metric
def test_a_sample_weight_counts_an_example_as_often(make, data):
    weight = np.array([1, 2, 0, 1])
    wanted = value_of(make, rows(data, np.repeat(np.arange(BATCH), weight)))
    found = value_of(make, data, sample_weight=weight)
    assert_close(found, wanted, rtol=1e-5)
    column = value_of(make, data, sample_weight=weight[:, None].astype("float16"))
    assert_equal(column, found)
    assert not np.allclose(wanted, value_of(make, data))


@every_metric
def test_padding_may_be_nan(make, data):
    weight = np.array([1, 0, 2, 1])
    *labels, weights = data
    padded = np.where(weight.reshape(-1, *[1] * (weights.ndim - 1)), weights, np.nan)
    found = value_of(make, (*labels, padded.astype("float32")), sample_weight=weight)
    assert_equal(found, value_of(make, data, sample_weight=weight))


@every_metric
def test_reset_forgets(make, data):
    metric = make()
    assert_equal(metric.result(), 0)
    metric.update_state(*rows(data, [1] * BATCH))
    metric.reset_state()
    assert_equal(metric.result(), 0)
    metric.update_state(*data)
    assert_equal(metric.result(), value_of(make, data))


@every_metric
def test_config_round_trip_through_json(make, data):
    metric = make()
    config = json.loads(json.dumps(keras.metrics.serialize(metric)))
    again = keras.metrics.deserialize(config)
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    assert_equal(again(*data), value_of(make, data))
    words = re.findall("[A-Z][a-z]+", type(metric).__name__)
    assert metric.name == "_".join(words).lower()


@every_metric
def test_half_precision_comes_in_and_the_state_is_float32(make, data):
    *labels, weights = data
    half = ops.cast(weights, "bfloat16")
    wanted = value_of(make, (*labels, numpy(ops.cast(half, "float32"))))
    with floatx("float16"), dtype_policy("mixed_float16"):
        metric = make()
        assert {variable.dtype for variable in metric.variables} == {"float32"}
        result = metric(*labels, half)
    assert dtype_of(result) == "float32"
    assert_equal(result, wanted)


@pytest.mark.backend_independent
@every_metric
def test_a_sample_weight_belongs_to_an_example_and_experts_need_an_axis(make, data):
    text = rf"`sample_weight` must have the shape \(batch,\) .*batch={BATCH} "
    for shape in ((), (BATCH - 1,), (BATCH, GATES + 1), (1, BATCH)):
        with pytest.raises(ValueError, match=text):
            make().update_state(*data, sample_weight=np.ones(shape))
    with pytest.raises(ValueError, match=r"have the shape .* Received shape: \(\)"):
        make().update_state(*data[:-1], 1.0)


# The entropy of single examples' weights.

# Over experts: 0, 1, 1.5 and 2 bits.
BITS = np.array(
    [[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0.25, 0, 0.25], [0.25] * 4], "float32"
)


@pytest.mark.parametrize("base", [2, 10.0])
def test_sample_entropy_by_hand(base):
    found = float(SampleEntropy(base)(BITS))
    assert found == pytest.approx(4.5 / 4 * math.log(2) / math.log(base))


def test_no_epsilon_bends_it_and_a_diverged_gate_shows():
    assert float(SampleEntropy()(np.full((4, 4), 0.25))) == 2.0
    weights = np.tile([1e-20, 1.0, 0.0, 0.0], (4, 1))
    assert float(SampleEntropy(math.e)(weights)) == pytest.approx(20e-20 * math.log(10))
    tiny = np.finfo("float32").smallest_subnormal
    for weights in (np.eye(4), np.tile(np.float32([tiny, 1, 0, 0]), (4, 1))):
        assert float(SampleEntropy()(weights)) == 0.0
    weights = BITS.copy()
    weights[0, 0] = math.nan
    assert math.isnan(SampleEntropy()(weights))


def test_weights_that_do_not_sum_to_one_are_shares():
    # As those of a gate that uses one expert, with its probability.
    assert float(SampleEntropy()(0.5 * np.eye(4))) == 0.0
    weights = np.array([[0.3, 0, 0, 0], [0, 0.9, 0, 0], [0, 0, 0, 0], [0.2, 0.2, 0, 0]])
    assert float(UtilizationEntropy(4)(0.25 * np.eye(4))) == 2.0
    found = UtilizationEntropy(4)(weights, sample_weight=[1, 1, 0, 0])
    assert float(found) == 1.0
    assert float(SampleEntropy()(weights)) == 0.25


def test_sample_entropy_averages_several_gates():
    assert float(SampleEntropy()(BITS.reshape(2, 2, 4))) == pytest.approx(4.5 / 4)
    # The mean over gates comes before the sample weights.
    value = SampleEntropy()(BITS.reshape(2, 2, 4), sample_weight=[1, 3])
    assert float(value) == pytest.approx((0.5 + 3 * 1.75) / 4)


# The entropy of the mean weights.


@pytest.mark.parametrize("base", [2, math.e])
def test_utilization_entropy_by_hand(base):
    # Their mean is (1/2, 1/4, 1/4, 0): 1.5 bits.
    weights = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0.5, 0, 0.5, 0]]
    found = float(UtilizationEntropy(4, base)(weights))
    assert found == pytest.approx(1.5 * math.log(2) / math.log(base))


def test_balance_and_collapse_are_exact():
    assert float(UtilizationEntropy(4)(np.eye(4))) == 2.0
    collapse = float(UtilizationEntropy(4)(np.eye(4)[[2] * 4]))
    assert collapse == 0.0
    assert math.copysign(1, collapse) == 1


def test_batches_and_gates_are_pooled_and_sample_weights_shift_the_mean():
    # The entropy within each batch is 0.
    metric = UtilizationEntropy(4)
    for expert in (1, 3):
        metric.update_state(np.eye(4)[[expert] * 4])
    assert float(metric.result()) == 1.0
    # Each gate always uses one expert; together they use two.
    weights = np.tile(np.eye(4)[:2], (4, 1, 1))
    assert float(UtilizationEntropy(4)(weights)) == 1.0
    assert float(UtilizationEntropy(4)(weights[:, 0])) == 0.0
    found = float(UtilizationEntropy(4)(np.eye(4), sample_weight=[3, 1, 0, 0]))
    assert found == pytest.approx(-(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)))


# Choices of experts, counted for each class.

CLASSIFIED = [0, 1, 1, 1]
CHOOSING = np.array(
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
def test_selection_table_by_hand(normalize, wanted):
    assert_close(
        SelectionTable(4, 4, normalize)(CLASSIFIED, CHOOSING), wanted, rtol=1e-6
    )


def test_a_result_is_not_changed_by_later_batches():
    metric = SelectionTable(4, 4)
    first = metric(CLASSIFIED, CHOOSING)
    metric.update_state(CLASSIFIED, CHOOSING)
    assert numpy(first).sum() == 4
    assert numpy(metric.result()).sum() == 8


def test_sample_weights_are_summed_to_the_last_bit():
    weight = np.float32([0.1, 1 / 3, 0.7, 1e-3])
    table = numpy(SelectionTable(4, 4)(CLASSIFIED, CHOOSING, weight))
    wanted = [[weight[0], 0], [weight[1], weight[2] + weight[3]]]
    assert_equal(table[:2, :2], np.float32(wanted))
    assert not table[2:].any()


# As an integer NaN is 0, or the smallest of all, by the backend.
@pytest.mark.parametrize("labels", [[-1, 0, 4, 3], [np.nan, 0.0, -0.5, 3.0]])
def test_selection_table_leaves_labels_out_that_are_missing_or_out_of_range(labels):
    table = SelectionTable(4, 4)(labels, np.eye(4)[[0, 0, 2, 3]])
    assert_equal(table, np.diag([1, 0, 0, 1]))


# The information that the chosen expert has on the class.


def information(experts, labels, num_experts=4, num_classes=4, **kwargs):
    weight = kwargs.pop("sample_weight", None)
    metric = MutualInformation(num_experts, num_classes, **kwargs)
    return float(metric(labels, np.eye(num_experts)[experts], weight))


@pytest.mark.parametrize("base", [2, math.e])
def test_mutual_information_by_hand(base):
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


def test_never_below_zero_by_rounding():
    rng = np.random.default_rng(0)
    labels, experts = np.indices((4, 4)).reshape(2, -1)
    for _ in range(20):
        amounts = np.outer(rng.random(4), rng.random(4)).reshape(-1)
        assert 0 <= information(experts, labels, sample_weight=amounts) < 1e-6


def test_the_largest_weight_chooses_and_the_first_of_several():
    metric = MutualInformation(4, 4)
    weights = np.array([[2, 4, 4, 0], [4, 2, 0, 4], [3, 3, 3, 3], [0, 1, 2, 3]])
    metric.update_state([0, 1, 2, 3], weights)
    assert_equal(metric.total, np.eye(4)[[1, 0, 0, 3]])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_labels_may_have_any_dtype_and_be_a_column(dtype):
    labels = np.array([[0], [1], [2], [3]]).astype(dtype)
    assert information([0, 1, 2, 3], labels) == 2.0


def test_labels_out_of_range_are_left_out_and_sample_weights_share_the_counts():
    assert information([0, 1, 0, 1], [0, 1, -1, 4]) == 1.0
    assert information([0, 0, 1, 1], [0, 10**6, 1, -(10**6)]) == 1.0
    found = information([0, 0, 1, 1], [0, 1, 0, 1], sample_weight=[1, 0, 0, 3])
    assert found == pytest.approx(2 - 0.75 * math.log2(3))


# The number of experts that a gate uses.


def test_weights_above_the_tolerance_are_counted_along_the_last_axis():
    weights = np.zeros((3, 5, 4))
    weights[1, 2, :3] = 1 / 3
    counts = active_experts(weights)
    assert counts.shape == (3, 5)
    assert counts[1, 2] == 3
    assert counts.sum() == 3
    assert active_experts([0.75, 0.25], tolerance=0.25) == 1
    assert active_experts([0.75, 0.25], tolerance=0.2) == 2
    assert active_experts(np.array([1.0, np.finfo("float32").tiny], "float32")) == 2


# Experts that related and unrelated tasks share.

# The expert sets {0, 1}, {1, 2}, {0, 1, 2}, {3}.
SETS = np.array([[0.5, 0.5, 0, 0], [0, 0.9, 0.1, 0], [0.2, 0.3, 0.5, 0], [0, 0, 0, 1]])


def test_without_groups_all_pairs_of_sets_above_the_tolerance_are_related():
    # 01: 1/3, 02: 2/3, 12: 2/3, all pairs with 3: 0.
    index = jaccard_index(SETS)
    assert index.related == pytest.approx((1 / 3 + 2 / 3 + 2 / 3) / 6)
    assert math.isnan(index.unrelated)
    # Above 0.15 the second set is {1}: 01: 1/2, 02: 2/3, 12: 1/3.
    index = jaccard_index(SETS[:3], tolerance=0.15)
    assert index.related == pytest.approx((1 / 2 + 2 / 3 + 1 / 3) / 3)


def test_groups_take_the_pairs_apart_and_may_have_names():
    for groups in ([0, 1, 0, 1], ["cats", "dogs", "cats", "dogs"]):
        related, unrelated = jaccard_index(SETS, groups)
        assert related == pytest.approx((2 / 3 + 0) / 2)  # 02, 13
        # 01, 03, 12, 23
        assert unrelated == pytest.approx((1 / 3 + 0 + 2 / 3 + 0) / 4)
    # Tasks each of its own group have no related pairs, and one task has none.
    index = jaccard_index(SETS, groups=range(4))
    assert math.isnan(index.related)
    assert index.unrelated == jaccard_index(SETS).related
    assert all(math.isnan(value) for value in jaccard_index([[0.5, 0.5]]))


def test_sets_that_are_equal_or_disjoint_or_empty():
    weights = [[0.9, 0.1, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.5, 0.5]]
    assert jaccard_index(weights, groups=[0, 0, 1]) == (1.0, 0.0)
    weights = [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]
    index = jaccard_index(weights, groups=[0, 0, 1], tolerance=0.6)
    assert index == (1.0, 0.0)


def update(labels, weights):
    MutualInformation(3, 2).update_state(np.zeros(labels, int), np.ones(weights))


UPDATE = UtilizationEntropy(4).update_state
test_what_cannot_be_is_refused = refusals(
    (SampleEntropy, r"`base` must be .* above 1\. Received", *(1, 0.5, math.nan, "2")),
    (
        SampleEntropy().update_state,
        r"shape \(batch, n\) or \(batch, g, n\)\. Rec",
        *(np.ones(4), np.ones((2, 3, 4, 5))),
    ),
    (UPDATE, r"n=4 experts\. Received shape: \(2, 3\)", np.ones((2, 3))),
    (UtilizationEntropy, "`num_experts` must be a positive", 0),
    (update, r"`weights` .*\(batch, n\) with n=3 .*shape: \(4, 2\)", (4, (4, 2))),
    (update, r"`weights` must have the shape \(batch, n\) with", (4, (4, 1, 3))),
    (update, r"`labels` .*\(batch, 1\).*batch=4 .*: \(4, 3\)", ((4, 3), (4, 3))),
    (update, r"`labels` must have the shape \(batch,\)", (5, (4, 3))),
    (update, "Pass one number per example", ((), (4, 3))),
    (MutualInformation, "`num_experts` must be a positive integer", (0, 2)),
    (MutualInformation, "`num_classes` must be a positive integer", (3, 2.5)),
    (MutualInformation, "`base` must be a finite number", (3, 2, 1)),
    (SelectionTable, "`normalize` must be one of None, 'cl", (2, 2, "rows")),
    (active_experts, "the experts as the last axis", 1.0, np.zeros((3, 0))),
    (active_experts, "with 1 NaN", [0.5, np.nan]),
    (active_experts, "`tolerance` must be .* at least 0", ([1.0], -1e-9)),
    (jaccard_index, r"shape \(tasks, experts\)", np.ones(4), np.ones((2, 3, 4))),
    (jaccard_index, "one label for each of the 4 tasks", (SETS, [0, 1])),
)
