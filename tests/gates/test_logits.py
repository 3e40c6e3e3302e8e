import keras
import numpy as np
import pytest
from helpers import numbers, numpy

from dselectk_keras import SoftmaxGate
from dselectk_keras.gates.logits import Logits


def logits(shape, routing_dim=None, *, seed=None, **settings):
    gate = SoftmaxGate(dtype="float16")
    gate.routing_dim = routing_dim
    return Logits(
        gate, "z", shape, keras.initializers.RandomNormal(seed=seed), **settings
    )


def test_static_logits_are_a_variable_in_float32():
    z = logits((2, 3))
    np.testing.assert_array_equal(numpy(z()), numpy(z.static))
    assert z.static.dtype == "float32"


def test_per_example_logits_are_an_affine_map_in_float32():
    z = logits((2, 3), routing_dim=4)
    z.bias.assign(numbers((6,)))
    x = numbers((5, 4)).astype("float16")
    wanted = x.astype("float32") @ numpy(z.kernel) + numbers((6,))
    np.testing.assert_allclose(numpy(z(x)), wanted.reshape(5, 2, 3), atol=1e-6)


def test_logits_may_have_no_elements():
    assert logits((2, 1, 0), routing_dim=4)(numbers((5, 4))).shape == (5, 2, 1, 0)


@pytest.mark.parametrize("seed", [None, 7])
def test_the_kernel_and_the_bias_are_drawn_apart(seed):
    z = logits((4,), routing_dim=1, seed=seed)
    assert not np.allclose(numpy(z.kernel)[0], numpy(z.bias))


@pytest.mark.parametrize("routing_dim", [None, 4])
def test_assigned_logits_hold_for_every_example(routing_dim):
    z, value = logits((2, 3), routing_dim), numbers((2, 3))
    z.assign(value)
    found = numpy(z(None if routing_dim is None else numbers((5, routing_dim))))
    np.testing.assert_array_equal(found, np.broadcast_to(value, found.shape))


def test_without_a_bias_there_is_nothing_to_assign():
    z = logits((2, 3), routing_dim=4, use_bias=False)
    with pytest.raises(ValueError, match="without a bias cannot be assigned"):
        z.assign(numbers((2, 3)))
