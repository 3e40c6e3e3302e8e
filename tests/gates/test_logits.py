import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import built, numbers, numpy, refusals, softmax, spread, weight_gradients
from keras import ops

from dselectk_keras import DSelectKGate, SoftmaxGate
from dselectk_keras.gates.logits import Logits


def logits(shape, routing_dim=None, *, seed=None, **settings):
    gate, normal = SoftmaxGate(dtype="float16"), keras.initializers.RandomNormal
    gate.routing_dim = routing_dim
    return Logits(gate, "z", shape, normal(seed=seed), **settings)


def test_logits_are_a_variable_or_an_affine_map_in_float32():
    z = logits((2, 3))
    assert_equal(z(), z.static)
    assert z.static.dtype == "float32"
    z = logits((2, 3), routing_dim=4)
    z.bias.assign(numbers((6,)))
    x = numbers((5, 4)).astype("float16")
    wanted = x.astype("float32") @ numpy(z.kernel) + numbers((6,))
    assert_close(z(x), wanted.reshape(5, 2, 3), atol=1e-6)
    z = logits((2, 1, 0), routing_dim=4)
    for x in (numbers((5, 4)), numbers((5, 2, 4))):
        assert z(x).shape == (5, 2, 1, 0)


@pytest.mark.parametrize("seed", [None, 7])
def test_the_kernel_and_the_bias_are_drawn_apart(seed):
    z = logits((4,), routing_dim=1, seed=seed)
    assert not np.allclose(numpy(z.kernel)[0], numpy(z.bias))


@pytest.mark.parametrize("routing_dim", [None, 4])
def test_assigned_logits_hold_for_every_example(routing_dim):
    z, value = logits((2, 3), routing_dim), numbers((2, 3))
    z.assign(value)
    found = numpy(z(None if routing_dim is None else numbers((5, routing_dim))))
    assert_equal(found, np.broadcast_to(value, found.shape))


def layer_norm(x, scale, offset):
    """A layer normalization of rows, in NumPy."""
    centered = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)
    return centered / deviation * scale + offset


def normalized(kernel, norms, x):
    """Logits of SMEAR's router: both factors are normalized over the features."""
    of_inputs, of_kernel = norms[:2], norms[2:]
    return layer_norm(x, *of_inputs) @ layer_norm(kernel.T, *of_kernel).T


def test_normalized_logits_by_hand():
    gate = built(SoftmaxGate(normalize=True), 2, 2)
    kernel, *norms = gate.trainable_weights
    # Two features normalize to -1 and 1; each expert's column as well.
    kernel.assign([[1.0, 4.0], [3.0, 0.0]])
    weights = numpy(gate.expert_weights(np.array([[5.0, 9.0]], "float32")))
    # Their products are 2 and -2, times the 0.01 that the kernel's scale starts at.
    share = 1 / (1 + np.exp(-0.04))
    assert_close(weights, [[share, 1 - share]], atol=1e-6)
    scale = [np.float32(0.01)] * 2
    assert [numpy(w).tolist() for w in norms] == [[1, 1], [0, 0], scale, [0, 0]]


@pytest.mark.parametrize("num_gates", [None, 2])
def test_gates_normalize_inputs_and_kernel(num_gates):
    gate = SoftmaxGate(normalize=True, use_bias=True, num_gates=num_gates)
    spread(built(gate, 3, 4))
    kernel, bias, *norms = map(numpy, gate.trainable_weights)
    x = numbers((6, 4), seed=9)
    wanted = normalized(kernel, norms, x) + bias
    wanted = wanted.reshape(6, *gate.gate_shape, 3)
    assert_close(gate._logits(x), wanted, atol=1e-5)
    assert_close(gate.expert_weights(x), softmax(wanted), atol=1e-5)
    # Neither the scale of the inputs nor that of the kernel matters, but for epsilon.
    gate.trainable_weights[0].assign(7 * kernel)
    assert_close(gate._logits(9 * x), wanted, atol=0.02)


def test_the_gradient_reaches_the_normalizations():
    gate = spread(built(SoftmaxGate(normalize=True, num_gates=2), 3, 4))
    x = ops.convert_to_tensor(numbers((6, 4), seed=9))
    upstream = ops.convert_to_tensor(numbers((6, 2, 3)))
    found = weight_gradients(gate, lambda: ops.sum(gate.expert_weights(x) * upstream))
    names = [variable.name for variable in gate.trainable_variables]
    assert len(names) == 5
    for name, each in zip(names, found, strict=True):
        assert np.isfinite(each).all()
        # An offset of all experts' kernels changes no softmax over the experts.
        moves = np.abs(each) > 1e-5
        assert not moves.any() if name == "gate_kernel_offset" else moves.all(), name


def test_constant_inputs_and_kernels_give_no_nan():
    gate = built(SoftmaxGate(normalize=True, kernel_initializer="ones"), 3, 4)
    found = numpy(gate.expert_weights(np.full((2, 4), 1e4, "float32")))
    assert_close(found, 1 / 3, rtol=1e-6)


def test_static_logits_are_not_normalized():
    weights = built(SoftmaxGate(normalize=True), 3).trainable_weights
    assert [tuple(w.shape) for w in weights] == [(3,)]


def test_normalized_inputs_of_each_gate():
    gates = SoftmaxGate(num_gates=3, use_bias=True, normalize=True)
    gates.build((None, 2), (None, 3, 4))
    spread(gates)
    kernel, bias, *norms = map(numpy, gates.trainable_weights)
    x = numbers((5, 3, 4), seed=9)
    found = numpy(gates._logits(x))
    for i in range(3):
        own = slice(2 * i, 2 * i + 2)
        wanted = normalized(kernel[:, own], norms, x[:, i]) + bias[own]
        assert_close(found[:, i], wanted, atol=1e-5)


@pytest.mark.parametrize("routing_dim", [None, 16])
def test_each_gate_is_drawn_as_a_single_gate_is(routing_dim):
    def draw(offset, *shape):
        return numpy(keras.initializers.GlorotUniform(seed=3 + offset)(shape))

    start = keras.initializers.GlorotUniform(seed=3)
    gates = SoftmaxGate(start, use_bias=True, num_gates=4)
    gates.build((None, 8), routing_dim and (None, routing_dim))
    found, *bias = map(numpy, gates.trainable_weights)
    if routing_dim is None:
        wanted = np.stack([draw(i, 8) for i in range(4)])
    else:
        # A fan of the kernel of all gates, (16, 32), would be larger.
        wanted = np.concatenate([draw(i, 16, 8) for i in range(4)], axis=1)
        assert_equal(bias, [np.concatenate([draw(4 + i, 8) for i in range(4)])])
    assert_equal(found, wanted)


@pytest.mark.parametrize("name", ["RandomUniform", "RandomNormal", "TruncatedNormal"])
def test_numbers_that_do_not_depend_on_the_shape_are_drawn_at_once(name):
    start = getattr(keras.initializers, name)(seed=3)
    gates = SoftmaxGate(start, num_gates=4)
    gates.build((None, 8), (None, 16))
    assert_equal(gates.trainable_weights[0], numpy(start((16, 32))))


def test_a_function_of_the_gate_itself_draws_all_gates_at_once():
    shapes = []

    class Gate(DSelectKGate):
        def _draw_bits(self, shape, dtype=None):
            shapes.append(tuple(shape))
            return super()._draw_bits(shape, dtype)

    Gate(2, num_gates=3).build((None, 8), (None, 5))
    assert shapes == [(5, 18), (18,)]


THREE = built(SoftmaxGate(num_gates=3), 2, 4)
test_what_does_not_fit_is_refused = refusals(
    (THREE.expert_weights, r"must have the shape \(batch, 4\)", np.ones((5, 2, 4))),
    (
        SoftmaxGate(num_gates=3).build,
        r"3 gates need .* \(batch, 3, features\)",
        ((None, 2), (None, 2, 4)),
    ),
    (
        lambda: logits((2, 3), routing_dim=4, use_bias=False).assign(numbers((2, 3))),
        "without a bias cannot be assigned",
    ),
)
