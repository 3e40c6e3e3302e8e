"""The networks of the paper: filters as one product, and the penalty on pixels."""

import keras
import numpy as np
import pytest
from keras import layers

from dselectk_keras.models import distill
from dselectk_keras.regularizers import SampleSimilarityRegularizer
from papers.specialization import _mixture


def images(count=3, height=8, width=6):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, height, width, 1)).astype("float32")


@pytest.mark.parametrize(("height", "width"), [(8, 6), (7, 9), (28, 28)])
def test_filters_are_a_convolution_and_a_maximum(height, width):
    x = images(height=height, width=width)
    filters = _mixture.Filters(2)
    filters.build(x.shape)
    bias = np.array([[0.1], [-0.2]], "float32")
    filters.bias.assign(bias)
    found = keras.ops.convert_to_numpy(filters(x))
    convolution = layers.Conv2D(2, 3, activation="relu")
    pooling = layers.MaxPooling2D(2)
    convolution.build(x.shape)
    kernel = keras.ops.convert_to_numpy(filters.kernel)
    convolution.set_weights([kernel.reshape(3, 3, 1, 2), bias[:, 0]])
    expected = keras.ops.convert_to_numpy(pooling(convolution(x)))
    expected = expected.reshape(len(x), -1, 2).transpose(0, 2, 1)
    assert found.shape == filters.compute_output_shape(x.shape) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["original", "attentive"])
def test_a_mixture_gives_probabilities(kind):
    model = _mixture.mixture((8, 6, 1), 4, 3, _mixture.gate_of(kind, importance=0.5))
    x = images()
    found = keras.ops.convert_to_numpy(model(x))
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-5)
    weights = keras.ops.convert_to_numpy(_mixture.weights_of_experts(model, x))
    assert weights.shape == (3, 3)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)


def test_the_penalty_is_on_distances_of_pixels():
    model = _mixture.mixture((8, 6, 1), 4, 3, _mixture.gate_of("original"))
    model.penalty = _mixture.similarity(0.5)
    _mixture.compiled(model, 0.1)
    x, y = images(), np.zeros((3, 1))
    losses = [
        keras.ops.convert_to_numpy(
            model.compute_loss(x, y, model(x), training=training)
        )
        for training in (True, False)
    ]
    pair = _mixture.weights_of_experts(model, x), x.reshape(3, -1)
    penalty = SampleSimilarityRegularizer(_mixture.BETA_S, 0.5)
    expected = keras.ops.convert_to_numpy(penalty(pair))
    assert losses[0] - losses[1] == pytest.approx(expected, rel=1e-4)
    assert expected != 0


def test_a_student_has_the_experts_and_the_filters_of_its_teacher():
    teacher = _mixture.mixture((8, 6, 1), 4, 3, _mixture.gate_of("attentive"))
    plain = keras.Model(teacher.inputs[0], teacher.outputs[0])
    student = distill(plain, _mixture.gate_of("original"))
    for part in ("filters",):
        for ours, theirs in zip(
            student.get_layer(part).get_weights(),
            teacher.get_layer(part).get_weights(),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs)
    own, other = (m.get_layer("moe").experts.get_weights() for m in (student, teacher))
    for ours, theirs in zip(own, other, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_single_expert_is_as_large_as_one_of_many():
    single = _mixture.single((8, 6, 1), 4)
    model = _mixture.mixture((8, 6, 1), 4, 3, _mixture.gate_of("original"))
    parts = model.get_layer("moe").experts, model.get_layer("filters")
    assert sum(part.count_params() for part in parts) == 3 * single.count_params()
