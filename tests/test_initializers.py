import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import numpy

from dselectk_keras import DenseExperts, DSelectKGate, Experts, SoftmaxGate
from dselectk_keras.initializers import clone_initializer, stacked_initializer

SHAPE = (6, 30, 20)


def test_clones_of_an_initializer_differ_without_a_seed_or_by_the_offset():
    initializer = keras.initializers.RandomNormal()
    first, second = (numpy(clone_initializer(initializer)((4, 4))) for _ in range(2))
    assert not np.allclose(first, second)
    initializer = keras.initializers.RandomNormal(stddev=2.0, seed=7)
    found = numpy(initializer((4, 4)))
    assert_equal(clone_initializer(initializer)((4, 4)), found)
    other = clone_initializer(initializer, seed_offset=3)
    assert other.get_config() == {"mean": 0.0, "stddev": 2.0, "seed": 10}
    assert not np.allclose(found, numpy(other((4, 4))))


class Constant(keras.initializers.Initializer):
    """An initializer without `get_config`."""

    def __init__(self, value=1.0):
        self.value = value

    def __call__(self, shape, dtype=None):
        return keras.ops.full(shape, self.value, dtype)


@pytest.mark.backend_independent
def test_an_initializer_whose_config_lacks_a_setting_is_refused():
    assert clone_initializer(Constant()).value == 1.0
    assert isinstance(clone_initializer("identity"), keras.initializers.Identity)
    assert clone_initializer(keras.ops.ones) is keras.ops.ones
    other = Constant(5.0)
    for use in (
        lambda: SoftmaxGate(kernel_initializer=other).build((None, 3)),
        lambda: DenseExperts(2, [3], kernel_initializer=other).build((None, 4)),
        lambda: Experts(keras.layers.Dense(3, kernel_initializer=other), 2),
    ):
        with pytest.raises(ValueError, match=r"Constant without \['value'\] in"):
            use()


@pytest.mark.parametrize("seed", [None, 7])
def test_every_expert_draws_its_own_kernel(seed):
    initializer = keras.initializers.GlorotUniform(seed=seed)
    kernels = numpy(stacked_initializer(initializer)(SHAPE))
    assert kernels.shape == SHAPE
    assert len(np.unique(kernels)) > 0.99 * kernels.size
    again = numpy(stacked_initializer(initializer)(SHAPE))
    assert np.array_equal(kernels, again) == (seed is not None)


def test_a_generator_of_seeds_draws_anew_for_each_expert_and_variable():
    initializer = keras.initializers.RandomUniform(seed=keras.random.SeedGenerator(7))
    kernels = numpy(stacked_initializer(initializer)(SHAPE))
    both = np.stack([kernels, numpy(clone_initializer(initializer)(SHAPE))])
    assert len(np.unique(both)) > 0.99 * both.size
    gate = DSelectKGate(2, z_initializer=initializer)
    gate.build((None, 4), (None, 3))
    kernel, bias, *_ = map(numpy, gate.trainable_variables)
    assert not np.isin(bias, kernel).any()


@pytest.mark.backends("jax", reason="Others compile nothing.")
def test_the_kernels_of_many_experts_are_stacked_without_a_program(monkeypatch):
    initializer = keras.initializers.HeNormal(seed=1)
    wanted = [clone_initializer(initializer, i)(SHAPE[1:]) for i in range(SHAPE[0])]
    monkeypatch.setattr(keras.ops, "stack", None)
    assert_equal(stacked_initializer(initializer)(SHAPE), [*map(numpy, wanted)])
    assert dtype_of(stacked_initializer(initializer)(SHAPE, "bfloat16")) == "bfloat16"


def test_each_expert_has_its_own_fan_and_is_orthogonal_by_itself():
    kernels = numpy(stacked_initializer("glorot_uniform")(SHAPE))
    limit = np.sqrt(6 / (30 + 20))
    largest = np.abs(kernels).max(axis=(1, 2))
    assert (largest <= limit).all()
    assert (largest > 0.97 * limit).all()
    kernels = numpy(stacked_initializer("orthogonal")(SHAPE))
    products = np.einsum("nij,nik->njk", kernels, kernels)
    assert_close(products, np.stack([np.eye(20)] * 6), atol=1e-5)
    kernels = stacked_initializer("ones")((2, 3), dtype="float16")
    assert dtype_of(kernels) == "float16"
    assert_equal(kernels, np.ones((2, 3)))
