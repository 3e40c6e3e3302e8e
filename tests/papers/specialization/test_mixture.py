"""The networks of the paper: filters as one product, and the sizes of Appendix B."""

import keras
import numpy as np
import pytest
from keras import layers

from dselectk_keras.models import distill
from dselectk_keras.regularizers import (
    ImportanceRegularizer,
    SampleSimilarityRegularizer,
)
from papers.specialization import _mixture


def images(count=3, height=8, width=6):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, height, width, 1)).astype("float32")


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(("height", "width"), [(8, 6), (7, 9), (28, 28)])
def test_filters_are_a_convolution_and_a_maximum(height, width, size):
    x = images(height=height, width=width)
    filters = _mixture.Filters(2, size)
    filters.build(x.shape)
    bias = np.array([[0.1], [-0.2]], "float32")
    filters.bias.assign(bias)
    found = keras.ops.convert_to_numpy(filters(x))
    convolution = layers.Conv2D(2, size, activation="relu")
    pooling = layers.MaxPooling2D(2)
    convolution.build(x.shape)
    kernel = keras.ops.convert_to_numpy(filters.kernel)
    convolution.set_weights([kernel.reshape(size, size, 1, 2), bias[:, 0]])
    expected = keras.ops.convert_to_numpy(pooling(convolution(x)))
    expected = expected.reshape(len(x), -1, 2).transpose(0, 2, 1)
    assert found.shape == filters.compute_output_shape(x.shape) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["original", "attentive"])
def test_a_mixture_gives_probabilities(kind):
    model = _mixture.mixture("mnist", (8, 6, 1), 4, 3, kind, ImportanceRegularizer(0.5))
    x = images()
    found = keras.ops.convert_to_numpy(model(x))
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-5)
    weights = keras.ops.convert_to_numpy(_mixture.weights_of_experts(model, x))
    assert weights.shape == (3, 3)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("kind", ["original", "attentive"])
def test_the_penalty_is_on_distances_of_pixels(kind):
    penalty = SampleSimilarityRegularizer(1e-6, 0.5)
    model = _mixture.mixture("mnist", (8, 6, 1), 4, 3, kind, penalty)
    x = images()
    model(x, training=True)
    pair = _mixture.weights_of_experts(model, x), x.reshape(3, -1)
    expected = keras.ops.convert_to_numpy(penalty(pair))
    found = keras.ops.convert_to_numpy(sum(model.losses))
    assert found == pytest.approx(expected, rel=1e-4)
    assert expected != 0


def test_a_student_has_the_experts_and_the_gate_s_network_of_its_teacher():
    teacher = _mixture.mixture("mnist", (8, 6, 1), 4, 3, "attentive")
    student = distill(teacher, _mixture.original_gate())
    for own, other in zip(_parts(student), _parts(teacher), strict=True):
        for ours, theirs in zip(own.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def _parts(model):
    moe = model.get_layer("moe")
    return model.get_layer("filters"), moe.experts, moe.routing_network


@pytest.mark.parametrize("name", _mixture.SIZES)
def test_a_single_expert_is_as_large_as_one_of_many(name):
    single = _mixture.single(name, (28, 28, 1), 4)
    model = _mixture.mixture(name, (28, 28, 1), 4, 3)
    parts = model.get_layer("moe").experts, model.get_layer("filters")
    assert sum(part.count_params() for part in parts) == 3 * single.count_params()


# Filter, first hidden layer, second one: with the widths that Appendix B gives.
SMALL = {
    "mnist": (10 + 170 * 5 + 6 * 32, 10 + 170 * 128 + 129 * 32),
    "fmnist_mnist": (10 + 170 * 5 + 6 * 32, 26 + 145 * 128 + 129 * 32),
    "fashion_mnist": (10 + 170 * 64 + 65 * 32, 80 + 1353 * 512 + 513 * 32),
    "multi_mnist": (10 + 170 * 64 + 65 * 32, 10 + 170 * 128 + 129 * 32),
}


@pytest.mark.parametrize("name", SMALL)
def test_sizes_are_those_of_appendix_b(name):
    expert, gate = SMALL[name]
    shape = (28, 28, 1)
    assert _mixture.single(name, shape, 10).count_params() == expert + 33 * 10
    network, width = _mixture.routing_network(name, shape)
    assert (network.count_params(), width) == (gate, 32)


def test_photographs_have_four_convolutions():
    expert = _mixture.single("cifar100", (32, 32, 3), 100)
    sizes = [448, 4_640, 4 * 32, 18_496, 73_856, 4 * 128]
    sizes += [513 * 1024, 1025 * 256, 257 * 100]
    assert [layer.count_params() for layer in expert.layers if layer.weights] == sizes
    network, width = _mixture.routing_network("cifar100", (32, 32, 3), None)
    assert network.layers[-3].output.shape == (None, 2048)
    assert (network.output_shape, width) == ((None, 256), 256)
    assert network.layers[-1].activation is keras.activations.linear
