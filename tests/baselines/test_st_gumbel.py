import keras
import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import Ramp, STGumbelGate
from dselectk_keras.ops import gumbel_noise

CASES = [
    Case(
        "straight-through Gumbel",
        lambda **kwargs: STGumbelGate(temperature=Ramp(2.0, 0.5, end=9), **kwargs),
        training_only=("gate",),
    ),
]


N, SEED = 4, 3


def built(logits=None, *, routing=None, **settings):
    gate = STGumbelGate(seed=SEED, **settings)
    gate.build((None, N), (None, routing) if routing else None)
    if logits is not None:
        gate.set_weights([np.asarray(logits, "float32")])
    return gate


def noisy(logits):
    """The logits with the noise of the first training call."""
    generator = keras.random.SeedGenerator(SEED)
    return logits + numpy(gumbel_noise(np.shape(logits), generator))


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("temperature", [5.0, 1.0, 1e-16])
def test_training_gives_one_to_the_largest_noisy_logit(temperature):
    logits = numbers((500, N))
    gate = built(logits, num_gates=500, temperature=temperature)
    found = numpy(gate.route(training=True).weights)
    wanted = np.eye(N)[noisy(logits).argmax(axis=-1)]
    np.testing.assert_array_equal(found, wanted)
    assert (found.argmax(axis=-1) != logits.argmax(axis=-1)).mean() > 0.2


def test_the_gradient_is_that_of_the_relaxed_weight():
    logits, tau = numbers((50, N)), 0.7
    gate = built(logits, num_gates=50, temperature=tau)
    upstream = numbers((50, N), seed=1)
    _, (found,) = value_and_gradients(
        lambda: [
            ops.sum(gate.route(training=True).weights * ops.convert_to_tensor(upstream))
        ],
        gate.trainable_variables,
        [v for v in gate.variables if not v.trainable],
    )
    p = softmax(noisy(logits) / tau)
    chosen = np.eye(N)[p.argmax(axis=-1)]
    p_j, u_j = ((x * chosen).sum(-1, keepdims=True) for x in (p, upstream))
    np.testing.assert_allclose(found, u_j * p_j * (chosen - p) / tau, atol=1e-5)
    assert (found != 0).all()


@pytest.mark.parametrize("logits", [[0.0, -1, -2, -3], [0, 0, 0, 0], [-1, 2, 0, 1]])
def test_inference_has_no_noise(logits):
    weights = numpy(built(logits).expert_weights())
    np.testing.assert_array_equal(weights, np.eye(N)[np.argmax(logits)])


def test_every_example_draws_for_itself_and_a_static_gate_for_all():
    experts = np.tile(np.eye(N, dtype="float32"), (200, 1, 1))
    per_example = built(np.zeros((3, N)), routing=3)
    found = numpy(per_example((experts, numbers((200, 3))), training=True))
    assert len(np.unique(found, axis=0)) == N
    static = numpy(built(np.zeros(N))(experts, training=True))
    assert len(np.unique(static, axis=0)) == 1


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
def test_half_precision_draws_the_same(policy):
    logits = numbers((50, N))
    outputs = [
        numpy(built(logits, num_gates=50, dtype=dtype).route(training=True).weights)
        for dtype in (policy, "float32")
    ]
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize(
    ("temperature", "wanted"),
    [
        (0, "positive"),
        (-1.0, "positive"),
        (np.inf, "a finite number"),
        (np.nan, "a finite number"),
    ],
)
def test_temperatures_that_cannot_be_are_refused(temperature, wanted):
    message = f"`temperature` must be {wanted}.*Received: temperature={temperature}"
    with pytest.raises(ValueError, match=message):
        STGumbelGate(temperature=temperature)
