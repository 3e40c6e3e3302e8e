"""What every streaming metric keeps, whatever it measures."""

import json
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import dtype_policy, floatx, numpy
from keras import ops

from dselectk_keras import metrics

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
        partial(metrics.MutualInformation, EXPERTS, CLASSES, base=3),
        (LABELS, ROWS),
    ),
    "sample_entropy": (partial(metrics.SampleEntropy, base=3), (OF_GATES,)),
    "selection_table": (
        partial(metrics.SelectionTable, EXPERTS, CLASSES, normalize="classes"),
        (LABELS, ROWS),
    ),
    "utilization_entropy": (
        partial(metrics.UtilizationEntropy, EXPERTS, base=3),
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
def test_the_examples_differ(make, data):
    # Otherwise a metric that only looks at some of them would pass above.
    for index in range(BATCH):
        one = value_of(make, rows(data, [index] * BATCH))
        assert not np.allclose(one, value_of(make, data))


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
    renamed = type(metric).from_config({**metric.get_config(), "name": "other"})
    assert renamed.name == "other"


@every_metric
def test_default_names_are_the_files(make, data):
    metric = make()
    assert type(metric).__module__.endswith(f".{metric.name}")


@every_metric
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_comes_in_and_float32_comes_out(make, data, dtype):
    *labels, weights = data
    half = ops.cast(weights, dtype)
    result = make()(*labels, half)
    assert dtype_of(result) == "float32"
    assert_equal(result, value_of(make, (*labels, numpy(ops.cast(half, "float32")))))


@every_metric
def test_the_state_is_float32_whatever_the_policy(make, data):
    wanted = value_of(make, data)
    with floatx("float16"), dtype_policy("mixed_float16"):
        metric = make()
        assert {variable.dtype for variable in metric.variables} == {"float32"}
        result = numpy(metric(*data))
    assert_equal(result, wanted)


@every_metric
@pytest.mark.parametrize("shape", [(), (BATCH - 1,), (BATCH, GATES + 1), (1, BATCH)])
def test_a_sample_weight_belongs_to_an_example(make, data, shape):
    text = rf"`sample_weight` must have the shape \(batch,\) .*batch={BATCH} "
    with pytest.raises(ValueError, match=text):
        make().update_state(*data, sample_weight=np.ones(shape))


@every_metric
def test_experts_need_an_axis(make, data):
    *labels, _ = data
    with pytest.raises(ValueError, match=r"have the shape .* Received shape: \(\)"):
        make().update_state(*labels, 1.0)
